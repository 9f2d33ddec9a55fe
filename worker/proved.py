"""What a server is, where its open incident has proved what no sweep can see."""

from fleet.contracts.remediation import Phase
from fleet.verdicts import Verdict

#: What a remediation proves by a request, and what an engine like that shows to every sweep.
_PROVED = frozenset({Verdict.STUCK, Verdict.UNRESPONSIVE})
_LOOKS_LIKE = frozenset({Verdict.IDLE, Verdict.SUSPECT})
#: From the command on the proof is about a process that may be gone: the sweep knows more.
_OUTDATED_IN = frozenset(
    {Phase.SETTLING, Phase.FREEING, Phase.COOLING, Phase.VERIFYING, Phase.CLOSED}
)


def is_proved(swept: Verdict | None, incident: Verdict | None, phase: Phase | str | None) -> bool:
    """Whether the verdict of the open incident holds, and not what the last sweep saw."""
    return incident in _PROVED and phase not in _OUTDATED_IN and swept in _LOOKS_LIKE
