"""What a single look came to."""

from dataclasses import dataclass

from fleet.verdicts import Verdict


@dataclass(frozen=True)
class Finding:
    """What a single reading says, and in words, why."""

    verdict: Verdict
    why: str
