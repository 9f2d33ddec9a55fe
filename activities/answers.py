"""How asking a source can fail. Messages go to people: they hold no secret and no whole URL."""


class NoAnswer(Exception):
    """Nothing is there to be read: no record, no route, refused, no answer in time."""


class BadAnswer(Exception):
    """Something answered that is no record, or that must not be read."""


LARGEST_RECORD = 64 * 1024
