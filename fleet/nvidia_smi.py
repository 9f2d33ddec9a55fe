"""Reads what ``nvidia-smi -q`` prints: for each GPU, what its driver says of its health."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fleet.kernel_log import address

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_COUNT = re.compile(r"Attached GPUs\s*:\s*(\d{1,4})")
_LOST = re.compile(
    r"Unable to determine the device handle for (?:gpu|GPU)\s?(?:\d{1,3}:\s?)?"
    r"(?P<gpu>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})?[^\n]{0,200}"
    r"|GPU is lost[^\n]{0,200}|No devices were found",
)
_NO_DRIVER = re.compile(
    r"Failed to initialize NVML: (?:Driver/library version mismatch|Driver Not Loaded)"
    r"|couldn't communicate with the NVIDIA driver"
)
_UNKNOWN = frozenset({"", "n/a", "[n/a]", "unknown error", "not supported", "[not supported]"})
#: By section and key; what stands in no section of a name has "".
_FLAGS = {
    ("", "Reset Required"): "reset_required",
    ("Remapped Rows", "Pending"): "remapping_pending",
    ("Remapped Rows", "Remapping Failure Occurred"): "remapping_failed",
    ("Retired Pages", "Pending Page Blacklist"): "retirement_pending",
    ("", "SRAM Threshold Exceeded"): "sram_threshold",
}
_NEEDS_RESET = "gpu requires reset"


@dataclass(frozen=True)
class Gpu:
    """One GPU. ``recovery`` is none where the driver is too old to say what it needs.

    ``flags`` are what it says yes to, of ``reset_required``, ``remapping_pending``,
    ``remapping_failed``, ``retirement_pending`` and ``sram_threshold``.
    """

    address: str
    uuid: str = ""
    recovery: str | None = None
    uncorrectable: int = 0
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Smi:
    """All that was understood. ``lost`` names GPUs that can't be reached, by address if known.

    ``complete`` says that each attached GPU is listed, in the order of their indexes.
    """

    gpus: tuple[Gpu, ...] = ()
    complete: bool = False
    lost: tuple[str, ...] = ()
    no_driver: str = ""


def read(text: str) -> Smi:
    """Understand as much as possible; a line that means nothing is passed over."""
    gpus: list[Gpu] = []
    for path, value in _entries(text):
        if path == ("GPU",):
            gpus.append(Gpu(address(value)))
        elif gpus:
            gpus[-1] = _with(gpus[-1], path, value)
    lost = tuple(address(found["gpu"]) if found["gpu"] else "" for found in _LOST.finditer(text))
    count, broken = _COUNT.search(text), _NO_DRIVER.search(text)
    complete = count is not None and int(count[1]) == len(gpus) and not lost
    return Smi(tuple(gpus), complete, lost, broken[0] if broken is not None else "")


def _entries(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each ``key : value`` with the sections that it stands in, told apart by their indents."""
    sections: list[tuple[int, str]] = []
    for line in text.splitlines():
        gpu = _GPU.match(line)
        if gpu is not None:
            sections = []
            yield ("GPU",), gpu[1]
            continue
        bare = line.lstrip()
        indent = len(line) - len(bare)
        while sections and sections[-1][0] >= indent:
            sections.pop()
        key, colon, value = bare.partition(" : ")
        if not colon:
            sections.append((indent, bare.strip()))
        else:
            yield (*(title for _, title in sections), key.strip()), value.strip()


def _with(gpu: Gpu, path: tuple[str, ...], value: str) -> Gpu:
    word, section, key = value.lower(), path[:-1], path[-1]
    if _NEEDS_RESET in word:
        return replace(gpu, flags=gpu.flags | {"reset_required"})
    if key == "GPU UUID":
        return replace(gpu, uuid=value)
    if key == "GPU Recovery Action":
        return replace(gpu, recovery=None if word in _UNKNOWN else value)
    flag = _FLAGS.get((section[-1] if section else "", key)) or _FLAGS.get(("", key))
    if flag is not None and word == "yes":
        return replace(gpu, flags=gpu.flags | {flag})
    if "Volatile" in section and value.isdecimal() and _is_uncorrectable(section, key):
        return replace(gpu, uncorrectable=gpu.uncorrectable + int(value))
    return gpu


def _is_uncorrectable(section: tuple[str, ...], key: str) -> bool:
    """Old drivers have a total of double bit errors instead of a line for each kind of memory."""
    return "Uncorrectable" in key or (section[-1] == "Double Bit" and key == "Total")
