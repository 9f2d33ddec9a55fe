"""The faults of a GPU that no restart of a process can cure, by their codes and states.

The source of ``XIDS`` is NVIDIA's Xid catalog
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), column *Resolution Bucket
(Immediate Action)*: the codes for which it is RESET_GPU, RESTART_BM, RESTART_VM, CHECK_MECHANICALS,
or a workflow that ends in one of them. Those with RESTART_APP or IGNORE (13, 31, 43, 45, 63, 94 and
many more) are no reason to keep a restart back. ``STATES`` follow NVIDIA's *GPU Memory Error
Management* (https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html).
"""

from enum import StrEnum
from typing import NamedTuple


class Remedy(StrEnum):
    """What helps where a restart of the process can't."""

    RESET = "reset the GPU"
    REBOOT = "reboot the host"
    DRIVER = "load the driver anew, or reboot the host"
    HARDWARE = "look at the hardware"
    PERSON = "a person decides"


class Meaning(NamedTuple):
    words: str
    remedy: Remedy


RECOVERY_CHANGED = 154
DOUBLE_BIT = 48
CONTAINED = 94
UNCONTAINED = 95

XIDS: dict[int, Meaning] = {
    46: Meaning("GPU stopped processing", Remedy.RESET),
    DOUBLE_BIT: Meaning("double bit ECC error", Remedy.RESET),
    54: Meaning("auxiliary power is not connected", Remedy.HARDWARE),
    62: Meaning("internal micro-controller halt", Remedy.RESET),
    64: Meaning("GPU memory remapping failure", Remedy.RESET),
    74: Meaning("NVLink error", Remedy.RESET),
    79: Meaning("GPU has fallen off the bus", Remedy.REBOOT),
    UNCONTAINED: Meaning("uncontained memory error", Remedy.RESET),
    109: Meaning("context switch timeout", Remedy.RESET),
    110: Meaning("security fault", Remedy.RESET),
    119: Meaning("GSP RPC timeout", Remedy.RESET),
    120: Meaning("GSP error", Remedy.RESET),
    136: Meaning("NVLink training failed", Remedy.RESET),
    140: Meaning("unrecovered ECC error", Remedy.RESET),
    143: Meaning("GPU initialization error", Remedy.RESET),
    151: Meaning("key rotation error", Remedy.REBOOT),
    RECOVERY_CHANGED: Meaning("GPU recovery action changed", Remedy.RESET),
    155: Meaning("NVLink: software defined error", Remedy.RESET),
    156: Meaning("resource retirement event", Remedy.RESET),
    158: Meaning("GPU fatal timeout", Remedy.RESET),
}


class GpuState(StrEnum):
    """What ``nvidia-smi -q`` may say of a GPU."""

    LOST = "lost"
    NO_DRIVER = "no_driver"
    RECOVERY_ACTION = "recovery_action"
    RESET_REQUIRED = "reset_required"
    UNCORRECTABLE_ECC = "uncorrectable_ecc"
    REMAPPING_FAILED = "remapping_failed"
    REMAPPING_PENDING = "remapping_pending"
    RETIREMENT_PENDING = "retirement_pending"
    SRAM_THRESHOLD = "sram_threshold"


STATES: dict[GpuState, Meaning] = {
    GpuState.LOST: Meaning("nvidia-smi can't reach the GPU", Remedy.REBOOT),
    GpuState.NO_DRIVER: Meaning("the driver does not answer", Remedy.DRIVER),
    GpuState.RECOVERY_ACTION: Meaning("the driver asks for a recovery action", Remedy.RESET),
    GpuState.RESET_REQUIRED: Meaning("the driver asks for a reset", Remedy.RESET),
    GpuState.UNCORRECTABLE_ECC: Meaning("uncorrectable ECC errors", Remedy.RESET),
    GpuState.REMAPPING_FAILED: Meaning("a row of memory can't be remapped", Remedy.HARDWARE),
    GpuState.REMAPPING_PENDING: Meaning("a row of memory waits to be remapped", Remedy.RESET),
    GpuState.RETIREMENT_PENDING: Meaning("a page of memory waits to be retired", Remedy.RESET),
    GpuState.SRAM_THRESHOLD: Meaning("too many uncorrectable SRAM errors", Remedy.HARDWARE),
}

#: A pending remapping is no reason: by NVIDIA's word, new work can be started meanwhile.
DEFAULT_STATES = tuple(state for state in GpuState if state is not GpuState.REMAPPING_PENDING)
DEFAULT_XIDS = tuple(XIDS)
