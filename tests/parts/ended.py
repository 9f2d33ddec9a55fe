"""What is left of a command that has ended."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What ``--json`` printed."""
        return json.loads(self.out)
