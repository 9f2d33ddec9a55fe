"""Which faults of a GPU keep a restart back, in the words of real drivers."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.contracts.host import GpuFault
from fleet.gpu_faults import DEFAULT_STATES, DEFAULT_XIDS, GpuState, Remedy
from fleet.gpus import MOST_FAULTS, Scope, in_words, incurable
from fleet.kernel_log import MOST_LINES, address, has_times, telling, xids
from fleet.nvidia_smi import Smi, read
from fleet.policy import Policy
from tests.parts import gpu_words as said

START = datetime(2026, 11, 30, 9, tzinfo=UTC)
LATER = START + timedelta(hours=2)
DEFAULT = Policy()
HEALTHY = said.smi(said.gpu())
TWO = said.smi(said.gpu("3B", uuid="GPU-a"), said.gpu("9B", uuid="GPU-b"))


def faults(
    kernel: str = "",
    smi: str = HEALTHY,
    *,
    devices: tuple[str, ...] | None = None,
    since: datetime = START,
    policy: Policy = DEFAULT,
) -> list[GpuFault]:
    errors = xids(telling(kernel))
    codes, states = policy.incurable_xids, policy.incurable_gpu_states
    return incurable(errors, read(smi), Scope(since, devices), codes, states)


def codes(found: list[GpuFault]) -> list[str]:
    return [fault.what.partition(":")[0] for fault in found]


@pytest.mark.parametrize(
    ("line", "code", "remedy"),
    [
        (said.BUS, "Xid 79", Remedy.REBOOT),
        (said.REBOOT, "Xid 154", Remedy.REBOOT),
        (said.RESET, "Xid 154", Remedy.RESET),
        (said.DOUBLE_BIT, "Xid 48", Remedy.RESET),
        (said.UNCONTAINED, "Xid 95", Remedy.RESET),
        (said.NOT_REMAPPED, "Xid 64", Remedy.RESET),
        (said.GSP, "Xid 119", Remedy.RESET),
        ("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed", "Xid 154", Remedy.RESET),
    ],
)
@pytest.mark.parametrize("written", [said.logged, said.dmesg])
def test_an_error_that_needs_more_than_a_restart_keeps_it_back(
    written: Callable[..., str], line: str, code: str, remedy: Remedy
) -> None:
    found = faults(written(LATER, line))
    assert codes(found) == [code]
    assert (found[0].remedy, found[0].at) == (remedy, LATER)
    assert found[0].gpu in ("0000:3b:00", "0000:9b:00")


@pytest.mark.parametrize(
    "line",
    [
        said.PAGE_FAULT,
        said.CONTAINED,
        said.CONTAINED_MIG,
        said.REMAPPED,
        said.NO_MORE,
        said.OLD_FORM,
        said.MEMORY,
        said.OOM,
        "NVRM: Xid error: xyz, invalid data",
        "a log that says Xid 79 itself",
    ],
)
def test_what_a_restart_cures_or_nobody_knows_keeps_nothing_back(line: str) -> None:
    assert faults(said.logged(LATER, line)) == []


def test_a_double_bit_error_that_was_contained_is_cured_by_a_restart() -> None:
    assert faults(said.logged(LATER, said.DOUBLE_BIT, said.CONTAINED)) == []
    not_all = said.logged(LATER, said.DOUBLE_BIT, said.CONTAINED, said.UNCONTAINED)
    assert codes(faults(not_all)) == ["Xid 48", "Xid 95"]


def test_a_recovery_action_that_was_taken_back_holds_no_longer() -> None:
    assert faults(said.logged(LATER, said.RESET, said.NO_MORE)) == []
    assert codes(faults(said.logged(LATER, said.NO_MORE, said.RESET))) == ["Xid 154"]


def test_only_what_came_since_the_process_was_started_matters() -> None:
    log = said.logged(START - timedelta(minutes=1), said.BUS)
    assert faults(log) == []
    assert codes(faults(log, since=START - timedelta(hours=1))) == ["Xid 79"]


def test_a_line_without_a_clear_time_decides_nothing() -> None:
    for line in (f"[12345.678901] {said.BUS}", f"[Fri Aug 30 11:11:22 2026] {said.BUS}", said.BUS):
        assert telling(line) == [line]
        assert not has_times(line)
        assert faults(line) == []


def test_the_clock_of_a_host_in_another_time_zone_is_understood() -> None:
    line = f"2026-11-30T13:00:00+0200 gpu-7 kernel: {said.BUS}"
    assert faults(line)[0].at == datetime(2026, 11, 30, 11, tzinfo=UTC)


def test_an_error_that_repeats_is_told_once_and_the_number_is_bounded() -> None:
    many = [said.BUS.replace("3b", f"{n:02x}") for n in range(20) for _ in range(3)]
    found = faults(said.logged(LATER, *many), "")
    assert len(found) == MOST_FAULTS
    assert len({fault.gpu for fault in found}) == MOST_FAULTS


@pytest.mark.parametrize(
    ("smi", "words", "remedy"),
    [
        (said.smi(said.gpu(recovery="Reset")), "recovery action: Reset", Remedy.RESET),
        (said.smi(said.gpu(recovery="Reboot")), "recovery action: Reboot", Remedy.REBOOT),
        (said.smi(said.gpu(recovery="Drain P2P")), "recovery action: Drain P2P", Remedy.RESET),
        (said.smi(said.gpu(recovery=None, reset="Yes")), "asks for a reset", Remedy.RESET),
        (said.smi(said.gpu(recovery=None, uncorrectable=2)), "ECC errors: 2", Remedy.RESET),
        (said.smi(said.gpu(failed="Yes")), "can't be remapped", Remedy.HARDWARE),
        (said.smi(said.gpu(sram="Yes")), "SRAM errors", Remedy.HARDWARE),
        (said.smi(said.gpu(blacklist="Yes")), "waits to be retired", Remedy.RESET),
        (said.LOST, "can't reach the GPU", Remedy.REBOOT),
        (said.smi(said.gpu("9B"), attached=2) + said.LOST_ONE, "can't reach", Remedy.REBOOT),
        (said.LOST_ONE.replace("GPU ", "GPU0: "), "can't reach the GPU", Remedy.REBOOT),
        (said.NO_DEVICES, "can't reach the GPU", Remedy.REBOOT),
        (said.MISMATCH, "Driver/library version mismatch", Remedy.DRIVER),
        (said.NO_DRIVER, "communicate with the NVIDIA driver", Remedy.DRIVER),
        (HEALTHY.replace("639 bank(s)", "GPU requires reset"), "asks for a reset", Remedy.RESET),
    ],
)
def test_what_the_driver_says_of_a_gpu_keeps_a_restart_back(
    smi: str, words: str, remedy: Remedy
) -> None:
    found = faults(smi=smi)
    assert [fault.remedy for fault in found] == [remedy]
    assert words in found[0].what


@pytest.mark.parametrize(
    "smi",
    [
        HEALTHY,
        "",
        said.smi(),
        said.smi(said.gpu(pending="Yes")),
        # A contained error of last week: the driver has judged it, and asks for nothing.
        said.smi(said.gpu(uncorrectable=2)),
        said.smi(said.gpu(recovery="N/A", reset="No")),
        "sh: 1: nvidia-smi: not found",
    ],
)
def test_a_gpu_that_new_work_can_use_keeps_nothing_back(smi: str) -> None:
    assert faults(smi=smi) == []


@pytest.mark.parametrize(
    "text", [said.LOST, said.LOST_ONE, said.LOST_ONE.replace("GPU ", "GPU0: ")]
)
def test_a_lost_gpu_is_named_as_the_kernel_names_it(text: str) -> None:
    assert read(text).lost == ("0000:3b:00",)


def test_a_total_of_double_bit_errors_is_how_an_old_driver_counts() -> None:
    old = (
        "Attached GPUs : 1\nGPU 00000000:3B:00.0\n    Ecc Errors\n        Volatile\n"
        "            Single Bit\n                Total                 : 7\n"
        "            Double Bit\n                Device Memory         : 1\n"
        "                Total                 : 1\n"
    )
    assert read(old).gpus[0].uncorrectable == 1


@pytest.mark.parametrize(
    ("devices", "kept_back"),
    [
        (None, True),
        (("0",), True),
        (("GPU-a",), True),
        (("nvidia.com/gpu=0",), True),
        (("0", "1"), True),
        (("1",), False),
        (("GPU-b",), False),
        # An index that nobody has, so nothing is sure.
        (("1", "7"), True),
    ],
)
def test_a_fault_of_a_gpu_that_surely_is_not_the_servers_matters_to_others(
    devices: tuple[str, ...] | None, kept_back: bool
) -> None:
    log = said.logged(LATER, said.UNCONTAINED)
    assert bool(faults(log, TWO, devices=devices)) is kept_back
    broken = said.smi(said.gpu("3B", uuid="GPU-a", recovery="Reset"), said.gpu("9B", uuid="GPU-b"))
    assert bool(faults(smi=broken, devices=devices)) is kept_back


def test_where_a_gpu_is_missing_from_the_list_its_order_says_nothing() -> None:
    """With the first of two lost, index 1 has become index 0 in the list."""
    log = said.logged(LATER, said.BUS)
    assert faults(log, said.smi(said.gpu("9B"), attached=2), devices=("1",))


def test_the_lists_of_the_fleet_file_decide() -> None:
    log = said.logged(LATER, said.BUS, said.PAGE_FAULT)
    none = Policy(incurable_xids=(), incurable_gpu_states=())
    assert faults(log, said.smi(said.gpu(recovery="Reset")), policy=none) == []
    own = Policy(incurable_xids=(31,), incurable_gpu_states=(GpuState.REMAPPING_PENDING,))
    found = faults(log, said.smi(said.gpu(pending="Yes", recovery="Reset")), policy=own)
    assert codes(found) == ["Xid 31", "a row of memory waits to be remapped"]
    assert found[0].remedy is Remedy.PERSON
    assert "MMU Fault" in found[0].what


def test_the_defaults_leave_out_what_nvidia_answers_with_a_restart() -> None:
    assert not {13, 31, 43, 45, 63, 68, 92, 94} & set(DEFAULT_XIDS)
    assert set(GpuState) - set(DEFAULT_STATES) == {GpuState.REMAPPING_PENDING}


def test_a_fault_is_told_with_what_helps() -> None:
    (fault,) = faults(said.logged(LATER, said.BUS))
    assert in_words(fault) == (
        "Xid 79: GPU has fallen off the bus on GPU 0000:3b:00 at 2026-11-30 11:00:00 UTC;"
        " what helps: reboot the host"
    )
    bare = GpuFault(what="the driver does not answer", remedy=Remedy.DRIVER)
    assert in_words(bare).startswith("the driver does not answer; what helps: ")


def test_of_a_long_log_the_newest_lines_of_interest_are_kept() -> None:
    log = "\n".join(f"NVRM: {n} " + "x" * 5000 for n in range(MOST_LINES + 5))
    kept = telling(f"{log}\nusb 1-1: new high-speed USB device\n")
    assert len(kept) == MOST_LINES
    assert kept[-1].startswith(f"NVRM: {MOST_LINES + 4} ")
    assert max(map(len, kept)) <= 2000


@pytest.mark.parametrize("text", ["00000000:3B:00.0", "0000:3b:00", "0000:3B:00.0"])
def test_an_address_has_one_spelling(text: str) -> None:
    assert address(text) == "0000:3b:00"


@given(st.text(max_size=400), st.text(max_size=400))
def test_whatever_a_host_answers_is_answered(kernel: str, smi: str) -> None:
    faults(kernel, smi)
    assert isinstance(read(smi), Smi)
