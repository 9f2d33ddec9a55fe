"""What hosts answer. The answers of Docker are real ones; systemd's follow its manual page."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.contracts.host import HostErrorType, HostState, HostStatus
from fleet.host_replies import (
    Reply,
    ReplyError,
    command_state,
    container_state,
    container_time,
    could_not_be_killed,
    pids,
    service_container,
    unit_state,
    unit_time,
    why_alive,
)

ID = "8ad665e46fdeaefd20108ec89880d2893e5d433926928fefcc8e775782add849"
STARTED = "2026-11-30T09:24:38.109107867Z"


def container(**changes: object) -> Reply:
    facts = {"id": ID, "status": "running", "started": STARTED, "exit": 0, "restarts": 0}
    return Reply(0, json.dumps({**facts, **changes}) + "\n")


def unit(**changes: str) -> Reply:
    facts = {
        "Id": "vllm.service",
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "FreezerState": "running",
        "InvocationID": "5b7c1e7b1d5c4bd3b1f4f4f9a1c7d9e0",
        "MainPID": "4242",
        "ExecMainStartTimestamp": "Mon 2026-11-30 09:12:27 UTC",
    }
    return Reply(0, "\n".join(f"{key}={value}" for key, value in {**facts, **changes}.items()))


def test_a_containers_id_and_start_are_kept_word_for_word() -> None:
    state = container_state(container())
    assert (state.identity, state.started) == (ID, STARTED)
    assert state.started_at == datetime(2026, 11, 30, 9, 24, 38, 109107, tzinfo=UTC)


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("running", HostStatus.RUNNING),
        ("paused", HostStatus.PAUSED),
        ("restarting", HostStatus.RESTARTING),
        ("created", HostStatus.STOPPED),
        ("exited", HostStatus.STOPPED),
        ("dead", HostStatus.STOPPED),
        ("removing", HostStatus.STOPPED),
        ("stopping", HostStatus.RESTARTING),
        ("a word of next year", HostStatus.UNKNOWN),
    ],
)
def test_the_engines_words_for_a_state(word: str, status: HostStatus) -> None:
    assert container_state(container(status=word)).status is status


@pytest.mark.parametrize(
    "complaint",
    [
        "Error: No such container: gpu-1",
        "Error response from daemon: No such container: gpu-1",
        "Error: no such object: gpu-1",
        'Error: no container with name or ID "gpu-1" found: no such container',
    ],
)
def test_a_container_that_is_not_there_is_gone(complaint: str) -> None:
    assert container_state(Reply(1, "\n", complaint)).status is HostStatus.GONE


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(127, "", "bash: line 1: docker: command not found"), HostErrorType.MISCONFIGURED),
        (Reply(1, "", "sudo: docker: command not found"), HostErrorType.MISCONFIGURED),
        (
            Reply(1, "", "permission denied while trying to connect to the Docker daemon socket"),
            HostErrorType.DENIED,
        ),
        (Reply(1, "", "sudo: a password is required"), HostErrorType.DENIED),
        (
            Reply(1, "", "Cannot connect to the Docker daemon. Is the docker daemon running?"),
            HostErrorType.UNREACHABLE,
        ),
        (Reply(None, ""), HostErrorType.UNREACHABLE),
        (Reply(0, ""), HostErrorType.MISCONFIGURED),
        (Reply(0, "[]"), HostErrorType.MISCONFIGURED),
        (Reply(0, '{"id": ""}'), HostErrorType.MISCONFIGURED),
        (Reply(0, "Welcome to gpu-1!\n{}"), HostErrorType.MISCONFIGURED),
    ],
)
def test_what_says_nothing_of_the_container_never_counts_as_gone(
    reply: Reply, kind: HostErrorType
) -> None:
    with pytest.raises(ReplyError) as caught:
        container_state(reply)
    assert caught.value.kind is kind


def test_a_secret_in_a_complaint_is_not_repeated() -> None:
    with pytest.raises(ReplyError) as caught:
        container_state(Reply(1, "", "cannot start: HF_TOKEN=hf_abcdefghijklmnopqrst refused"))
    assert "hf_abc" not in str(caught.value)


@given(st.text(max_size=300), st.text(max_size=300), st.none() | st.integers(0, 255))
def test_no_answer_of_a_container_engine_breaks_the_reader(
    out: str, err: str, status: int | None
) -> None:
    for read in (container_state, unit_state, command_state, service_container):
        try:
            found = read(Reply(status, out, err))
        except ReplyError:
            continue
        assert found is None or isinstance(found, HostState | str)


def test_a_container_that_never_started_has_no_start_time() -> None:
    assert container_time("0001-01-01T00:00:00Z") is None


@given(
    st.datetimes(min_value=datetime(2, 1, 2), max_value=datetime(9999, 12, 30)),  # noqa: DTZ001
    st.integers(0, 999),
    st.integers(-14 * 60, 14 * 60),
)
def test_a_start_time_with_nanoseconds_and_any_offset_is_read_to_the_microsecond(
    moment: datetime, nanoseconds: int, minutes: int
) -> None:
    zone = timezone(timedelta(minutes=minutes))
    text = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}{nanoseconds:03d}"
    text = text.rjust(29, "0") + _offset(minutes)
    assert container_time(text) == moment.replace(tzinfo=zone)


def _offset(minutes: int) -> str:
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-30T09:24:38", "n/a"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert container_time(text) is None
    assert unit_time(text) is None


def test_the_one_container_of_a_service_is_found_beside_one_off_runs() -> None:
    assert service_container(Reply(0, f"{ID} False\n1234 True\n")) == ID


def test_a_container_without_the_one_off_label_counts() -> None:
    assert service_container(Reply(0, f"{ID} \n")) == ID


def test_a_service_without_a_container_has_none() -> None:
    assert service_container(Reply(0, "1234 True\n")) is None


def test_a_scaled_service_is_no_server() -> None:
    with pytest.raises(ReplyError, match="2 containers") as caught:
        service_container(Reply(0, "1234 False\n5678 False\n"))
    assert caught.value.kind is HostErrorType.MISCONFIGURED


def test_a_units_name_is_its_identity_and_the_invocation_its_process() -> None:
    state = unit_state(unit())
    assert state.status is HostStatus.RUNNING
    assert (state.identity, state.started) == ("vllm.service", "5b7c1e7b1d5c4bd3b1f4f4f9a1c7d9e0")
    assert state.started_at == datetime(2026, 11, 30, 9, 12, 27, tzinfo=UTC)


def test_a_restarted_unit_is_the_same_object_and_another_process() -> None:
    before, after = unit_state(unit()), unit_state(unit(InvocationID="another"))
    assert after.same_object(before)
    assert not after.same_process(before)


def test_before_invocation_ids_the_pid_and_its_start_tell_processes_apart() -> None:
    assert unit_state(unit(InvocationID="")).started == "4242 Mon 2026-11-30 09:12:27 UTC"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"ActiveState": "inactive", "SubState": "dead"}, HostStatus.STOPPED),
        ({"ActiveState": "failed", "SubState": "failed"}, HostStatus.STOPPED),
        ({"LoadState": "masked", "ActiveState": "inactive"}, HostStatus.STOPPED),
        ({"LoadState": "not-found", "ActiveState": "inactive"}, HostStatus.GONE),
        ({"ActiveState": "deactivating", "SubState": "stop-sigterm"}, HostStatus.RESTARTING),
        ({"ActiveState": "activating", "SubState": "start"}, HostStatus.RUNNING),
        (
            {"ActiveState": "activating", "SubState": "auto-restart", "MainPID": "0"},
            HostStatus.RESTARTING,
        ),
        ({"ActiveState": "reloading"}, HostStatus.RUNNING),
        ({"FreezerState": "frozen"}, HostStatus.PAUSED),
        ({"ActiveState": "a word of next year"}, HostStatus.UNKNOWN),
    ],
)
def test_systemds_words_for_a_state(changes: dict[str, str], status: HostStatus) -> None:
    assert unit_state(unit(**changes)).status is status


def test_a_host_without_systemd_is_named_as_such() -> None:
    complaint = "System has not been booted with systemd as init system (PID 1). Can't operate."
    with pytest.raises(ReplyError, match="does not run systemd") as caught:
        unit_state(Reply(1, "", complaint))
    assert caught.value.kind is HostErrorType.MISCONFIGURED


def test_a_time_in_a_zone_that_is_only_a_name_is_not_guessed() -> None:
    assert unit_state(unit(ExecMainStartTimestamp="Mon 2026-11-30 10:12:27 CET")).started_at is None


def test_the_first_line_of_an_identity_names_the_process() -> None:
    state = command_state(Reply(0, "\n 4242 Mon Nov 30 \nmore\n"))
    assert (state.status, state.started) == (HostStatus.RUNNING, "4242 Mon Nov 30")
    assert state.same_object(command_state(Reply(0, "4243 Mon Nov 30")))


@pytest.mark.parametrize("reply", [Reply(0, " \n"), Reply(1, "4242", "no such process")])
def test_an_identity_that_fails_or_is_empty_says_nothing(reply: Reply) -> None:
    state = command_state(reply)
    assert (state.status, state.identity) == (HostStatus.UNKNOWN, "")


def test_an_endless_identity_is_cut() -> None:
    assert len(command_state(Reply(0, "x" * 5000)).started) == 200


STAT = "4711 (my (odd) name) {} 1 4711 4711 0 -1 4194560 1 2 3\n"


def test_a_process_that_no_signal_reaches_is_named() -> None:
    stats = STAT.format("S") + STAT.format("D").replace("4711", "4712", 1)
    assert why_alive(Reply(0, stats)).startswith("process 4712 is in uninterruptible sleep")


@pytest.mark.parametrize("text", ["", "nonsense", "\n", "7 (a) ", STAT.format("R"), ") D"])
def test_processes_that_can_be_killed_or_are_gone_are_not_named(text: str) -> None:
    assert why_alive(Reply(1, text)) == ""


def test_numbers_of_processes_are_read_under_a_heading_or_none() -> None:
    assert pids(Reply(0, "    PID\n  41\n7\n")) == [41, 7]
    assert pids(Reply(1, "", "no such container")) == []


@pytest.mark.parametrize(
    ("complaint", "is_so"),
    [
        (
            "Cannot restart vllm: tried to kill container, but did not receive an exit event",
            True,
        ),
        ("Error: given PID did not die within timeout", True),
        ("Error response from daemon: no space left on device", False),
    ],
)
def test_an_engine_that_could_not_kill_says_so(complaint: str, is_so: bool) -> None:
    assert could_not_be_killed(Reply(1, "", complaint)) is is_so
