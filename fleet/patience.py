"""How patient whoever judges an engine is; a server's policy says that, and much more."""

from datetime import timedelta
from typing import Protocol


class Patience(Protocol):
    """``confirm_wait`` lies between two looks at a doubt, and ``load_limit`` is how long a load may
    take. ``restart_unproven``: without counters, or with such as only ends of requests move,
    an unanswered request counts as a proof.
    """

    @property
    def confirm_wait(self) -> timedelta: ...

    @property
    def load_limit(self) -> timedelta: ...

    @property
    def restart_unproven(self) -> bool: ...
