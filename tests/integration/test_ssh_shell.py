"""The shell over SSH: what is proved of a command whose end was not seen, and its bounds."""

import asyncio
import os
import signal
import tracemalloc
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncssh
import pytest

from activities.ssh import Limits, LostTrackError, Shell, connected
from activities.ssh_trust import NotSentError, scan_host_key
from fleet.actions import Host
from fleet.contracts.host import HostErrorType
from tests.parts.odd_ssh import (
    HangsUpOnCommands,
    RefusesCommands,
    SlowLogin,
    SlowSession,
    odd_ssh,
)
from tests.parts.sshd import Sshd, free_port
from tests.parts.wire import wire_to

pytestmark = [pytest.mark.anyio, pytest.mark.needs("openssh-server")]

QUICK = Limits(seconds=20, keep=64 * 1024)
SHORT = timedelta(milliseconds=500)


def unheld() -> None:
    """The last look of a command that nothing stands in the way of."""


@pytest.fixture
async def shell(sshd: Sshd) -> AsyncIterator[Shell]:
    async with connected(sshd.host()) as shell:
        yield shell


async def refusal(host: Host) -> NotSentError:
    with pytest.raises(NotSentError) as caught:
        async with connected(host):
            pytest.fail("it let us in")
    return caught.value


@pytest.mark.parametrize(
    "argument",
    [
        "two words",
        "it's",
        'say "hi"',
        "$HOME",
        "`id`",
        "$(id)",
        "a; id",
        "a && id",
        "line\nline",
        "*",
        "~",
        "\\",
        "-n",
        "",
        "größer",
        "!!",
        "a\tb",
    ],
)
async def test_every_argument_arrives_as_it_was_written(shell: Shell, argument: str) -> None:
    done = await shell.run(["printf", "%s|%s", argument, "end"], QUICK)
    assert done.reply.out == f"{argument}|end"


async def test_status_and_both_streams_come_back(shell: Shell) -> None:
    done = await shell.run(["sh", "-c", "echo out; echo err >&2; exit 3"], QUICK)
    assert (done.status, done.out, done.err) == (3, b"out\n", b"err\n")


async def test_a_missing_program_is_status_127(shell: Shell) -> None:
    assert (await shell.run(["no-such-program"], QUICK)).status == 127


async def test_a_command_killed_on_the_host_has_no_status(shell: Shell) -> None:
    assert (await shell.run(["sh", "-c", "kill -9 $$"], QUICK)).status is None


async def test_merged_streams_keep_their_order(shell: Shell) -> None:
    script = "for n in 1 2 3; do echo out$n; sleep 0.1; echo err$n >&2; sleep 0.1; done"
    done = await shell.run(["sh", "-c", script], QUICK, merged=True)
    assert done.out.split() == [b"out1", b"err1", b"out2", b"err2", b"out3", b"err3"]


async def test_a_flood_is_ended_and_costs_bounded_memory(shell: Shell) -> None:
    tracemalloc.start()
    done = await shell.run(["yes", "x" * 1000], Limits(seconds=60, keep=10_000, flood=20_000_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.cut
    assert done.status is None
    assert len(done.out) == 10_000
    assert peak < 10_000_000


async def test_a_command_that_acts_is_not_ended_by_its_own_chatter(shell: Shell) -> None:
    script = "yes | head -c 5000000; echo the end"
    done = await shell.act(["sh", "-c", script], Limits(seconds=60, keep=1000), unheld)
    assert (done.status, done.cut) == (0, True)
    assert done.out.endswith(b"the end\n")


async def test_a_daemon_that_is_left_behind_does_not_hold_up_the_command(shell: Shell) -> None:
    done = await shell.act(["sh", "-c", "sleep 300 & echo $!"], QUICK, unheld)
    os.kill(int(done.out), signal.SIGKILL)
    assert done.status == 0


async def test_a_command_without_end_is_given_up(shell: Shell) -> None:
    with pytest.raises(LostTrackError, match=r"no end of the command within 0\.5 s"):
        await shell.run(["sleep", "5"], Limits(seconds=0.5, keep=100))


async def test_the_connection_outlives_a_command_that_was_given_up(shell: Shell) -> None:
    with pytest.raises(LostTrackError):
        await shell.run(["sleep", "5"], Limits(seconds=0.5, keep=100))
    assert (await shell.run(["echo", "still here"], QUICK)).out == b"still here\n"


async def test_a_connection_that_ends_in_the_middle_of_a_command_loses_track_of_it(
    sshd: Sshd, tmp_path: Path
) -> None:
    script = f"echo ran >> {tmp_path}/ran; kill -9 $PPID; sleep 5"
    with pytest.raises(LostTrackError, match="lost while the command ran"):
        async with connected(sshd.host()) as shell:
            await shell.act(["sh", "-c", script], QUICK, unheld)
    assert (tmp_path / "ran").read_text() == "ran\n"


async def test_a_wire_cut_in_the_middle_of_a_command_loses_track_and_the_command_goes_on(
    sshd: Sshd, tmp_path: Path
) -> None:
    script = f"touch {tmp_path}/begun; sleep 1; touch {tmp_path}/ended"
    async with wire_to(sshd.port) as wire, connected(sshd.host_at(wire.port)) as shell:
        acting = asyncio.create_task(shell.act(["sh", "-c", script], QUICK, unheld))
        await appears(tmp_path / "begun")
        wire.cut()
        with pytest.raises(LostTrackError):
            await acting
    await appears(tmp_path / "ended")


async def test_a_frozen_wire_in_the_middle_of_a_command_loses_track(
    sshd: Sshd, tmp_path: Path
) -> None:
    async with wire_to(sshd.port) as wire, connected(sshd.host_at(wire.port)) as shell:
        limits = Limits(seconds=3, keep=100)
        argv = ["sh", "-c", f"touch {tmp_path}/begun; sleep 1"]
        acting = asyncio.create_task(shell.act(argv, limits, unheld))
        await appears(tmp_path / "begun")
        wire.freeze()
        with pytest.raises(LostTrackError):
            await acting


async def test_a_wire_frozen_before_the_command_proves_that_it_never_left(
    sshd: Sshd, tmp_path: Path
) -> None:
    async with wire_to(sshd.port) as wire, connected(sshd.host_at(wire.port)) as shell:
        wire.freeze()
        with pytest.raises(NotSentError) as caught:
            await shell.act(["touch", f"{tmp_path}/ran"], Limits(seconds=1, keep=100), unheld)
    assert caught.value.kind is HostErrorType.UNREACHABLE
    assert not (tmp_path / "ran").exists()


async def test_the_last_look_stops_a_command_that_is_about_to_leave(
    sshd: Sshd, tmp_path: Path
) -> None:
    def held() -> None:
        raise NotSentError(HostErrorType.SUPERSEDED, "something changed")

    async with connected(sshd.host()) as shell:
        with pytest.raises(NotSentError, match="something changed"):
            await shell.act(["touch", f"{tmp_path}/ran"], QUICK, held)
        await shell.run(["true"], QUICK)
    assert not (tmp_path / "ran").exists()


async def test_being_told_to_stop_while_a_command_acts_loses_track_of_it(
    sshd: Sshd, tmp_path: Path
) -> None:
    async with connected(sshd.host()) as shell:
        argv = ["sh", "-c", f"touch {tmp_path}/begun; sleep 5"]
        acting = asyncio.create_task(shell.act(argv, QUICK, unheld))
        await appears(tmp_path / "begun")
        acting.cancel()
        with pytest.raises(LostTrackError, match="told to stop"):
            await acting


async def test_a_refused_command_may_have_run_for_all_that_is_known(tmp_path: Path) -> None:
    async with odd_ssh(tmp_path, RefusesCommands) as host, connected(host) as shell:
        with pytest.raises(LostTrackError, match="refused the command"):
            await shell.act(["true"], QUICK, unheld)


async def test_a_server_that_hangs_up_on_the_command_may_have_run_it(tmp_path: Path) -> None:
    async with odd_ssh(tmp_path, HangsUpOnCommands) as host, connected(host) as shell:
        with pytest.raises(LostTrackError):
            await shell.act(["true"], QUICK, unheld)


async def test_a_session_that_does_not_open_in_time_proves_that_nothing_left(
    tmp_path: Path,
) -> None:
    async with odd_ssh(tmp_path, SlowSession) as host, connected(host) as shell:
        with pytest.raises(NotSentError) as caught:
            await shell.act(["true"], Limits(seconds=0.3, keep=100), unheld)
    assert caught.value.kind is HostErrorType.UNREACHABLE


async def test_a_closed_port_is_unreachable(sshd: Sshd) -> None:
    problem = await refusal(sshd.host_at(free_port()))
    assert problem.kind is HostErrorType.UNREACHABLE
    assert "refused" in str(problem)


async def test_a_name_that_does_not_resolve_is_unreachable(sshd: Sshd) -> None:
    problem = await refusal(sshd.host(address="gpu-1.invalid"))
    assert problem.kind is HostErrorType.UNREACHABLE


async def test_a_server_that_accepts_and_never_speaks_is_unreachable(sshd: Sshd) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        problem = await refusal(sshd.host_at(port, connect_timeout=SHORT))
    finally:
        server.close()
    assert problem.kind is HostErrorType.UNREACHABLE
    assert "no answer within 0.5 s" in str(problem)


async def test_a_server_that_is_no_ssh_server_is_unreachable(sshd: Sshd) -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(web, "127.0.0.1", 0)
    try:
        problem = await refusal(sshd.host_at(server.sockets[0].getsockname()[1]))
    finally:
        server.close()
    assert problem.kind is HostErrorType.UNREACHABLE


async def test_a_login_without_end_is_unreachable(tmp_path: Path) -> None:
    async with odd_ssh(tmp_path, SlowLogin) as host:
        problem = await refusal(host.model_copy(update={"connect_timeout": SHORT}))
    assert problem.kind is HostErrorType.UNREACHABLE


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"])
async def test_a_changed_host_key_of_any_kind_is_told_apart_from_an_unreachable_host(
    sshd: Sshd, tmp_path: Path, kind: str
) -> None:
    other = asyncssh.generate_private_key(kind).export_public_key().decode().strip()
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {other}\n")
    problem = await refusal(sshd.host(known_hosts=str(known_hosts)))
    assert problem.kind is HostErrorType.KEY_CHANGED
    assert "is not the one in" in str(problem)
    assert "steady ssh-scan" in str(problem)


async def test_the_right_key_is_found_among_others_of_other_kinds(
    sshd: Sshd, tmp_path: Path
) -> None:
    other = asyncssh.generate_private_key("ssh-rsa").export_public_key().decode().strip()
    known_hosts = tmp_path / "known_hosts"
    right = sshd.known_hosts.read_text()
    known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {other}\n{right}")
    async with connected(sshd.host(known_hosts=str(known_hosts))) as shell:
        assert (await shell.run(["echo", "in"], QUICK)).out == b"in\n"


@pytest.mark.parametrize("content", ["", "# nobody yet\n", None])
async def test_an_unknown_host_is_never_trusted_at_first_sight(
    sshd: Sshd, tmp_path: Path, content: str | None
) -> None:
    known_hosts = tmp_path / "known_hosts"
    if content is not None:
        known_hosts.write_text(content)
    problem = await refusal(sshd.host(known_hosts=str(known_hosts)))
    assert problem.kind is HostErrorType.KEY_CHANGED
    assert "steady ssh-scan" in str(problem)


async def test_a_revoked_host_key_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    known_hosts = tmp_path / "known_hosts"
    right = sshd.known_hosts.read_text()
    known_hosts.write_text(f"{right}@revoked {right}")
    problem = await refusal(sshd.host(known_hosts=str(known_hosts)))
    assert problem.kind is HostErrorType.KEY_CHANGED


async def test_a_line_that_is_no_entry_is_named(sshd: Sshd, tmp_path: Path) -> None:
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text("@nonsense a b c\n")
    problem = await refusal(sshd.host(known_hosts=str(known_hosts)))
    assert problem.kind is HostErrorType.MISCONFIGURED
    assert str(known_hosts) in str(problem)


async def test_another_users_key_is_denied(sshd: Sshd, tmp_path: Path) -> None:
    stranger = asyncssh.generate_private_key("ssh-ed25519")
    stranger.write_private_key(str(tmp_path / "key"))
    problem = await refusal(sshd.host(key=str(tmp_path / "key")))
    assert problem.kind is HostErrorType.DENIED
    assert "authorized_keys" in str(problem)


async def test_a_missing_key_file_is_denied_by_name(sshd: Sshd, tmp_path: Path) -> None:
    problem = await refusal(sshd.host(key=str(tmp_path / "nowhere")))
    assert problem.kind is HostErrorType.DENIED
    assert f"{tmp_path}/nowhere" in str(problem)


async def test_a_key_file_that_holds_no_key_is_denied_and_not_shown(
    sshd: Sshd, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("hunter2\n")
    problem = await refusal(sshd.host(key=str(tmp_path / "key")))
    assert problem.kind is HostErrorType.DENIED
    assert "hunter2" not in str(problem)


async def test_a_key_with_a_passphrase_is_denied(sshd: Sshd, tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(tmp_path / "key"), "pkcs8-pem", passphrase="open sesame")
    problem = await refusal(sshd.host(key=str(tmp_path / "key")))
    assert problem.kind is HostErrorType.DENIED
    assert "passphrase" in str(problem)


async def test_an_agent_and_a_configuration_file_change_nothing(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("Host *\n  Port 1\n  StrictHostKeyChecking no\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    async with connected(sshd.host()) as shell:
        assert (await shell.run(["echo", "in"], QUICK)).out == b"in\n"


async def test_a_scan_prints_lines_that_make_the_host_known(sshd: Sshd, tmp_path: Path) -> None:
    lines = await scan_host_key("127.0.0.1", sshd.port)
    assert all(" SHA256:" in line for line in lines)
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text("\n".join(lines) + "\n")
    async with connected(sshd.host(known_hosts=str(known_hosts))) as shell:
        assert (await shell.run(["echo", "in"], QUICK)).out == b"in\n"


async def test_a_scan_of_a_closed_port_says_so() -> None:
    with pytest.raises(NotSentError, match="refused"):
        await scan_host_key("127.0.0.1", free_port(), timeout=5)


async def appears(file: Path, within: float = 20) -> None:
    async with asyncio.timeout(within):
        while not os.path.exists(file):  # noqa: PTH110 - a poll of a local file, not worth a thread
            await asyncio.sleep(0.02)
