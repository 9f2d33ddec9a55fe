"""What statuses and bodies of a server's answers mean."""

import json

from fleet.engines.reading import Answer, Came, Page

_LONGEST = 150

#: Words of a 503 that says "not now", and of a server that is on its way up or down.
_FULL = ("overload", "queue", "too many", "capacity", "busy", "no slot", "rate limit")
_BOOTING = (
    *("loading", "initializ", "initialis", "starting", "warming", "warm-up", "warmup"),
    *("not ready", "shutting down", "shutdown", "draining", "scaling"),
)


def first_line(body: bytes) -> str:
    """The one line of an answer that says what went wrong, cut short; JSON is looked into."""
    text = body.decode(errors="replace").strip()
    if text.startswith("{"):
        text = _message(text) or text
    return text.splitlines()[0].strip()[:_LONGEST] if text else ""


def _message(text: str) -> str:
    try:
        said = json.loads(text)
    except ValueError:
        return ""
    for _ in range(3):
        if not isinstance(said, dict):
            break
        said = next((said[key] for key in ("error", "message", "detail") if key in said), "")
    return said.strip() if isinstance(said, str) else ""


def of_request(status: int, said: str) -> Answer:
    """What a request came to. Any success counts, also one without text: the engine was asked, and
    not the model. An error proves no hang.
    """
    detail = f"{status}{f', {said}' if said else ''}"[:200]
    if 200 <= status < 300:
        return Answer(came=Came.GIVEN)
    if status == 429:
        return Answer(came=Came.FULL, detail=detail)
    if status < 500:
        return Answer(came=Came.REFUSED, detail=detail)
    words = said.casefold() if status == 503 else ""
    if any(word in words for word in _BOOTING):
        return Answer(came=Came.LOADING, detail=detail)
    came = Came.FULL if any(word in words for word in _FULL) else Came.FAILED
    return Answer(came=came, detail=detail)


def of_page(status: int) -> Page:
    """What a status says of the page that was asked for. ``BARE``: there is no such page."""
    if 200 <= status < 300:
        return Page.OK
    if status == 503:
        return Page.UNAVAILABLE
    if status == 429:
        return Page.SLOW
    if status in (400, 404, 405, 501):
        return Page.BARE
    return Page.FAILING if status >= 500 else Page.UNREADABLE


def of_balancer(status: int) -> Page:
    """What a load balancer's status says: who wants a key lives, and an error proves no death."""
    if 200 <= status < 300 or status in (401, 403, 429):
        return Page.ALIVE
    return Page.FAILING if status >= 500 else Page.UNREADABLE
