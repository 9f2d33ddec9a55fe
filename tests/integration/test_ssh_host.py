"""The host's activities over a real SSH server: units, commands of the operator's own, refusals.

systemd does not run in a container, so units stand behind a small `systemctl` of the test, which
keeps a unit's state in a file and starts it with another invocation ID.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import host as host_module
from activities.host import HostActivities
from fleet.actions import CommandRestart, SystemdRestart
from fleet.config import ServerSpec
from fleet.contracts.host import (
    Effect,
    HostErrorType,
    HostRequest,
    HostState,
    HostStatus,
    RestartOrder,
)
from tests.parts.odd_ssh import SlowSession, odd_ssh
from tests.parts.on_host import NoPolicies, OnHost, Policies, spec
from tests.parts.sshd import Sshd, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.needs("openssh-server")]

UNSEEN = HostState(status=HostStatus.UNKNOWN)
SYSTEMCTL = """#!/bin/sh
unit="{folder}/unit"
case "$1" in
show) [ "$TZ" = UTC ] && cat "$unit" ;;
restart)
    [ "$2" = -- ] && [ "$3" = vllm.service ] || exit 9
    echo restarted >> "{folder}/restarts"
    sed -i "s/^InvocationID=.*/InvocationID=second/" "$unit" ;;
*) exit 9 ;;
esac
"""
UNIT = """Id=vllm.service
LoadState=loaded
ActiveState=active
SubState=running
InvocationID=first
MainPID=4242
ExecMainStartTimestamp=Mon 2026-11-30 09:12:27 UTC
"""

Script = Callable[[str, str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes a program for the host and gives its path, which has a space in it."""

    def write(name: str, content: str) -> str:
        program = tmp_path / f"{name} of the test"
        program.write_text(content)
        program.chmod(0o755)
        return str(program)

    return write


def command(*argv: str, identity: tuple[str, ...] = (), stop: float = 1) -> CommandRestart:
    return CommandRestart(
        kind="command",
        host="h",
        argv=argv,
        identity=identity,
        stop_timeout=timedelta(seconds=stop),
    )


def lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture
def unit(sshd: Sshd, tmp_path: Path, script: Script) -> OnHost:
    (tmp_path / "unit").write_text(UNIT)
    program = script("systemctl", SYSTEMCTL.format(folder=tmp_path))
    restart = SystemdRestart(kind="systemd", host="h", unit="vllm.service", cli=(program,))
    return OnHost.of(sshd.host(), restart, tmp_path / "state")


async def test_a_unit_is_restarted_once_for_one_decision(unit: OnHost, tmp_path: Path) -> None:
    before = await unit.inspect()
    assert (before.status, before.started) == (HostStatus.RUNNING, "first")
    assert (await unit.restart(before)).effect is Effect.DONE
    after = await unit.inspect()
    assert after.same_object(before)
    assert after.started == "second"
    kind, _ = await unit.refused(before)
    assert kind is HostErrorType.SUPERSEDED
    assert lines(tmp_path / "restarts") == 1


async def test_a_unit_that_somebody_stopped_is_not_started(unit: OnHost, tmp_path: Path) -> None:
    before = await unit.inspect()
    (tmp_path / "unit").write_text(UNIT.replace("=active", "=inactive"))
    kind, words = await unit.refused(before)
    assert kind is HostErrorType.SUPERSEDED
    assert "it is stopped now" in words
    assert lines(tmp_path / "restarts") == 0


async def test_a_unit_that_is_gone_is_gone(unit: OnHost, tmp_path: Path) -> None:
    (tmp_path / "unit").write_text("LoadState=not-found\nActiveState=inactive\n")
    assert (await unit.inspect()).status is HostStatus.GONE


async def test_a_host_that_does_not_run_systemd_is_told_by_the_real_program(sshd: Sshd) -> None:
    if Path("/run/systemd/system").exists():
        pytest.skip("this machine runs systemd")
    server = OnHost.of(sshd.host(), SystemdRestart(kind="systemd", host="h", unit="vllm.service"))
    with pytest.raises(ApplicationError) as caught:
        await server.inspect()
    assert caught.value.type == HostErrorType.MISCONFIGURED


async def test_the_arguments_of_a_command_arrive_unsplit(
    sshd: Sshd, tmp_path: Path, script: Script
) -> None:
    program = script("restart", f'#!/bin/sh\nprintf "%s|" "$@" > "{tmp_path}/got"\n')
    hostile = ("a b", "$HOME", "`id`", "x; touch pwned", "it's", 'say "hi"', "two\nlines", "*")
    server = OnHost.of(sshd.host(), command(program, *hostile))
    assert (await server.restart(UNSEEN)).effect is Effect.DONE
    assert (tmp_path / "got").read_text() == "|".join(hostile) + "|"


async def test_a_command_with_an_identity_restarts_once_for_one_decision(
    sshd: Sshd, tmp_path: Path, script: Script
) -> None:
    (tmp_path / "pid").write_text("1\n")
    program = script(
        "restart", f'#!/bin/sh\necho $$ >> "{tmp_path}/restarts"; echo $$ > "{tmp_path}/pid"\n'
    )
    server = OnHost.of(sshd.host(), command(program, identity=("cat", f"{tmp_path}/pid")))
    before = await server.inspect()
    assert (before.status, before.started) == (HostStatus.RUNNING, "1")
    assert (await server.restart(before)).effect is Effect.DONE
    kind, _ = await server.refused(before)
    assert kind is HostErrorType.SUPERSEDED
    assert lines(tmp_path / "restarts") == 1


async def test_an_identity_that_stops_answering_holds_the_restart_back(
    sshd: Sshd, tmp_path: Path
) -> None:
    (tmp_path / "pid").write_text("1\n")
    restart = command("touch", f"{tmp_path}/ran", identity=("cat", f"{tmp_path}/pid"))
    server = OnHost.of(sshd.host(), restart)
    before = await server.inspect()
    (tmp_path / "pid").unlink()
    kind, _ = await server.refused(before)
    assert kind is HostErrorType.SUPERSEDED
    assert not (tmp_path / "ran").exists()


async def test_a_command_without_identity_shows_nothing(sshd: Sshd) -> None:
    state = await OnHost.of(sshd.host(), command("true")).inspect()
    assert (state.status, state.identity) == (HostStatus.UNKNOWN, "")


async def test_a_command_killed_on_the_host_is_unknown(sshd: Sshd) -> None:
    server = OnHost.of(sshd.host(), command("sh", "-c", "kill -9 $$"))
    result = await server.restart(UNSEEN)
    assert result.effect is Effect.UNKNOWN
    assert "killed on the host" in result.detail


async def test_a_command_that_fails_is_failed_with_the_end_of_its_complaint(sshd: Sshd) -> None:
    server = OnHost.of(sshd.host(), command("sh", "-c", "seq 100000 >&2; exit 3"))
    result = await server.restart(UNSEEN)
    assert result.effect is Effect.FAILED
    assert "status 3" in result.detail
    assert result.detail.endswith(" 100000")
    assert len(result.detail) <= 500


async def test_a_command_over_its_time_is_unknown_and_left_alone(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "restart_timeout", lambda _: timedelta(seconds=1))
    argv = ("sh", "-c", f"sleep 2; touch {tmp_path}/ended")
    result = await OnHost.of(sshd.host(), command(*argv)).restart(UNSEEN)
    assert result.effect is Effect.UNKNOWN
    assert "no end of the command" in result.detail
    async with asyncio.timeout(20):
        while not (tmp_path / "ended").exists():
            await asyncio.sleep(0.05)


async def test_what_the_host_said_too_long_ago_is_not_acted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes a second to open the session in which the command would leave."""
    monkeypatch.setattr(host_module, "FRESH_FOR", 1.5)
    async with odd_ssh(tmp_path, SlowSession) as host:
        server = OnHost.of(host, command("true", identity=("identity",)))
        kind, words = await server.refused(await server.inspect())
    assert kind is HostErrorType.UNREACHABLE
    assert "stale" in words


async def test_an_unreachable_host_is_a_refusal_that_only_a_look_may_retry(sshd: Sshd) -> None:
    server = OnHost.of(sshd.host_at(free_port()), command("true"))
    with pytest.raises(ApplicationError) as caught:
        await server.inspect()
    assert (caught.value.type, caught.value.non_retryable) == (HostErrorType.UNREACHABLE, False)
    kind, _ = await server.refused(UNSEEN)
    assert kind is HostErrorType.UNREACHABLE


@pytest.mark.parametrize(
    ("known", "kind"),
    [
        (None, HostErrorType.REMOVED),
        (spec(None, None), HostErrorType.NO_ACTION),
    ],
)
async def test_a_server_without_a_place_in_the_fleet_is_not_touched(
    known: ServerSpec | None, kind: HostErrorType
) -> None:
    activities = HostActivities(Policies(known), Path("/nonexistent"))
    order = RestartOrder(server="gpu-1", expected=UNSEEN, key="k")
    for call, argument in (
        (activities.restart_server, order),
        (activities.inspect_host, HostRequest(server="gpu-1")),
    ):
        with pytest.raises(ApplicationError) as caught:
            await ActivityEnvironment().run(call, argument)  # type: ignore[arg-type]
        assert (caught.value.type, caught.value.non_retryable) == (kind, True)


async def test_a_policy_that_cannot_be_read_stops_the_restart_with_proof() -> None:
    server = OnHost(HostActivities(NoPolicies(), Path("/nonexistent")), ActivityEnvironment())
    kind, _ = await server.refused(UNSEEN)
    assert kind is HostErrorType.NO_POLICY


async def test_it_heartbeats_while_it_waits(sshd: Sshd) -> None:
    server = OnHost.of(sshd.host(), command("sleep", "1"))
    beats: list[object] = []
    server.environment.on_heartbeat = lambda *details: beats.append(details)
    server.heartbeat_timeout(timedelta(milliseconds=400))
    await server.restart(UNSEEN)
    assert len(beats) >= 2


async def test_evidence_of_an_unreachable_host_is_listed_as_missing(
    sshd: Sshd, state_dir: Path
) -> None:
    evidence = await OnHost.of(sshd.host_at(free_port()), command("true"), state_dir).evidence()
    assert evidence.path is None
    assert [line.split(":")[0] for line in evidence.missing] == ["everything"]


async def test_evidence_that_hangs_is_cut_off_on_the_host_too(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.evidence._SECONDS", 1)
    sleeper = ("sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 300")
    server = OnHost.of(sshd.host(), command("true", identity=sleeper), tmp_path / "state")
    evidence = await server.evidence()
    assert "identity.txt: cut off after 1 s" in evidence.missing
    group = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(group, 0)


async def test_evidence_in_all_has_its_bound(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "_EVIDENCE_WITHIN", 1.0)
    server = OnHost.of(sshd.host(), command("true", identity=("sleep", "3")), tmp_path / "state")
    assert "the rest: no time left after 1 s" in (await server.evidence()).missing


async def test_evidence_that_cannot_be_written_is_listed_as_missing(
    sshd: Sshd, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    server = OnHost.of(sshd.host(), command("true", identity=("echo", "1")), tmp_path / "state")
    evidence = await server.evidence()
    assert evidence.path is None
    assert any("can't be written" in line for line in evidence.missing)


async def test_no_name_of_an_incident_leads_out_of_the_folder(sshd: Sshd, state_dir: Path) -> None:
    server = OnHost.of(sshd.host(), command("true", identity=("echo", "1")), state_dir)
    evidence = await server.evidence("../../../gpu/../x")
    assert evidence.path is not None
    assert Path(evidence.path).resolve().is_relative_to(state_dir / "evidence")


async def test_two_collections_of_one_incident_do_not_overwrite_each_other(
    sshd: Sshd, state_dir: Path
) -> None:
    server = OnHost.of(sshd.host(), command("true", identity=("echo", "1")), state_dir)
    first, second = await server.evidence(), await server.evidence()
    assert first.path is not None
    assert first.path != second.path
    assert stat.S_IMODE((Path(first.path) / "identity.txt").stat().st_mode) == 0o600


async def test_neither_key_nor_known_hosts_nor_arguments_are_logged(
    sshd: Sshd, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await OnHost.of(sshd.host(), command("true", "an-argument-of-the-operator")).restart(UNSEEN)
    assert "an-argument-of-the-operator" not in caplog.text
