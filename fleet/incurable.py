"""What evidence said against a restart, and of which process it said so."""

from dataclasses import dataclass

from fleet.contracts.host import Evidence, GpuFault, HostState
from fleet.gpus import in_words

_TOLD = 3


@dataclass(frozen=True)
class Incurable:
    """False where nothing speaks against a restart."""

    faults: tuple[GpuFault, ...] = ()
    process: HostState | None = None

    @classmethod
    def of(cls, evidence: Evidence) -> "Incurable":
        return cls(tuple(evidence.faults), evidence.process)

    def __bool__(self) -> bool:
        return bool(self.faults)

    @property
    def why(self) -> str:
        said = "; ".join(in_words(fault) for fault in self.faults[:_TOLD])
        more = len(self.faults) - _TOLD
        return f"a restart can't cure it: {said}" + (f"; and {more} more" if more > 0 else "")

    def is_of_another(self, now: HostState) -> bool:
        """Whether the host shows another process by now, of which nothing is known yet."""
        if self.process is None:
            return False
        if now.process:
            # Of a stronger step of the ladder, whose own words are of something larger.
            return now.own_start != self.process.own_start
        return not now.same_process(self.process)
