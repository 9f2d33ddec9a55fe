"""Which faults of a GPU no restart of a process can cure, by the words of its driver."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet.contracts.host import GpuFault
from fleet.gpu_faults import (
    CONTAINED,
    DOUBLE_BIT,
    RECOVERY_CHANGED,
    STATES,
    UNCONTAINED,
    XIDS,
    GpuState,
    Meaning,
    Remedy,
)
from fleet.kernel_log import Xid
from fleet.nvidia_smi import Gpu, Smi

#: So many faults are told, the oldest; one alone keeps a restart back.
MOST_FAULTS = 8


_CHANGED_TO = re.compile(r"\bto (?:0x)?([0-9A-Fa-f]{1,4})\b(?: \(([^)]{0,60})\))?")


@dataclass(frozen=True)
class Scope:
    """Which of a host's GPU errors concern a server.

    Of the kernel's errors those count that came at or after ``since``, the start of the server's
    process by the host's clock. ``devices`` are the GPUs that the container was given (an index, a
    UUID, or a CDI name), none where that is not known: then each GPU of the host counts. A GPU is
    left out only where it is sure that the server does not use it.
    """

    since: datetime
    devices: tuple[str, ...] | None = None

    def concerns(self, smi: Smi) -> Callable[[str], bool]:
        """Whether the GPU at an address may be one of the server's."""
        used = _used(self.devices, smi)
        known = {gpu.address for gpu in smi.gpus}
        return lambda gpu: used is None or gpu not in known or gpu in used


def incurable(
    errors: Iterable[Xid],
    smi: Smi,
    scope: Scope,
    codes: Collection[int],
    states: Collection[GpuState],
) -> list[GpuFault]:
    """The faults that a restart can't cure, of GPUs that the server may use; none: it may."""
    concerns = scope.concerns(smi)
    recent = [
        each
        for each in errors
        if each.at is not None and each.at >= scope.since and concerns(each.gpu)
    ]
    mine = [gpu for gpu in smi.gpus if concerns(gpu.address)]
    once: dict[tuple[str, str], GpuFault] = {}
    for fault in (*_by_kernel(recent, codes), *_by_driver(smi, mine, states)):
        once.setdefault((fault.what, fault.gpu), fault)
    return list(once.values())[:MOST_FAULTS]


def _by_kernel(errors: Sequence[Xid], codes: Collection[int]) -> Iterator[GpuFault]:
    contained = {each.gpu for each in errors if each.code == CONTAINED}
    contained -= {each.gpu for each in errors if each.code == UNCONTAINED}
    asked = {each.gpu: each for each in errors if each.code == RECOVERY_CHANGED}
    for each in errors:
        if each.code not in codes:
            continue
        if each.code == DOUBLE_BIT and each.gpu in contained:
            # The driver ended what had used the bad page, and keeps the page from others.
            continue
        meaning = XIDS.get(each.code, Meaning(each.said[:80] or "listed in the fleet file", _ASK))
        if each.code == RECOVERY_CHANGED:
            # Only the last one holds; it may say that nothing is needed any more.
            needed = _needed(each) if asked[each.gpu] is each else None
            if needed is None:
                continue
            meaning = needed
        yield GpuFault(
            what=f"Xid {each.code}: {meaning.words}",
            gpu=each.gpu,
            at=each.at,
            remedy=meaning.remedy,
        )


_ASK = Remedy.PERSON


def _needed(changed: Xid) -> Meaning | None:
    """What the driver says of a recovery action: ``… to 0x2 (Node Reboot Required)``."""
    found = _CHANGED_TO.search(changed.said)
    if found is None:
        return XIDS[RECOVERY_CHANGED]
    if int(found[1], 16) == 0:
        return None
    return _action(found[2] or f"0x{found[1]}")


def _action(label: str) -> Meaning:
    remedy = Remedy.REBOOT if "reboot" in label.lower() else Remedy.RESET
    return Meaning(f"the driver asks for: {label[:60]}", remedy)


def _by_driver(smi: Smi, mine: Iterable[Gpu], states: Collection[GpuState]) -> Iterator[GpuFault]:
    if smi.no_driver and GpuState.NO_DRIVER in states:
        yield _fault(GpuState.NO_DRIVER, "", smi.no_driver)
    if GpuState.LOST in states:
        yield from (_fault(GpuState.LOST, gpu) for gpu in smi.lost)
    for gpu in mine:
        asked = gpu.recovery or "None"
        if asked.lower() != "none" and GpuState.RECOVERY_ACTION in states:
            yield _fault(GpuState.RECOVERY_ACTION, gpu.address, asked, _action(asked).remedy)
        # A driver that says what a GPU needs has judged its errors already: a contained one of last
        # week is still counted, and needs nothing.
        if gpu.uncorrectable and gpu.recovery is None and GpuState.UNCORRECTABLE_ECC in states:
            yield _fault(GpuState.UNCORRECTABLE_ECC, gpu.address, f"{gpu.uncorrectable}")
        yield from (_fault(state, gpu.address) for state in states if state in gpu.flags)


def _fault(state: GpuState, gpu: str, detail: str = "", remedy: Remedy | None = None) -> GpuFault:
    meaning = STATES[state]
    what = f"{meaning.words}: {detail[:80]}" if detail else meaning.words
    return GpuFault(what=what, gpu=gpu, remedy=remedy or meaning.remedy)


def _used(devices: Collection[str] | None, smi: Smi) -> set[str] | None:
    """The addresses of the GPUs that a container was given; none where any of them is unclear."""
    if not devices or not smi.complete:
        return None
    by_name = {str(index): gpu.address for index, gpu in enumerate(smi.gpus)}
    by_name |= {gpu.uuid: gpu.address for gpu in smi.gpus if gpu.uuid}
    found = {by_name.get(device.rpartition("=")[2]) for device in devices}
    return {each for each in found if each is not None} if None not in found else None


def in_words(fault: GpuFault) -> str:
    where = f" on GPU {fault.gpu}" if fault.gpu else ""
    when = f" at {fault.at:%Y-%m-%d %H:%M:%S} UTC" if fault.at is not None else ""
    return f"{fault.what}{where}{when}; what helps: {fault.remedy}"
