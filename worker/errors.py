"""What the processes say to a person when they can't go on."""


class SetupError(Exception):
    """Something that steady needs is not there; the message names it and the remedy.

    The command line prints the message as it stands, without a traceback, and exits 3.
    """


class EndedError(SetupError):
    """A program that steady started has ended unasked."""


class SettingError(SetupError):
    """A setting of this process can't be used; the message names it. The command line exits 2."""
