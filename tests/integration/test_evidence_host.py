"""Evidence from a host over a real SSH server, whose GPU tools are small programs of the test.

They print what public logs show of NVIDIA's own: no machine of this project has a GPU.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.host import HostActivities
from fleet.actions import CommandRestart, Host, Restart, SystemdRestart
from fleet.any_source import Source
from fleet.contracts.host import Evidence, HostStatus
from fleet.gpu_faults import Remedy
from fleet.secret_refs import SecretRef
from fleet.sources import StatusSource
from tests.parts import gpu_words as said
from tests.parts import sshd as sshd_part
from tests.parts.on_host import OnHost, Policies, spec
from tests.parts.ports import free_port
from tests.parts.sshd import Sshd
from tests.parts.vllm import sim_vllm

pytestmark = [pytest.mark.anyio, pytest.mark.needs("openssh-server")]

SECRET = "hunter2isnotenoughofasecret"
UNIT = """#!/bin/sh
[ "$1" = show ] && cat <<END
Id=vllm.service
LoadState=loaded
ActiveState=active
SubState=running
InvocationID=first
MainPID={pid}
ExecMainStartTimestamp={started:%a %Y-%m-%d %H:%M:%S} UTC
END
[ "$1" = status ] && echo "vllm.service: python3 -m vllm --api-key {secret} --port 8000"
exit 0
"""


class GpuHost:
    """A machine whose programs are those of ``bin`` first, and then this machine's."""

    def __init__(self, server: Sshd, folder: Path, state_dir: Path) -> None:
        self.server, self.bin, self.state_dir = server, folder, state_dir
        self.started = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=3)
        self.has("journalctl", "echo '-- No entries --'")
        self.has("dmesg", "exit 1")
        self.prints("nvidia-smi", said.smi(said.gpu()))

    def has(self, name: str, script: str) -> str:
        program = self.bin / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return str(program)

    def prints(self, name: str, text: str, status: int = 0) -> None:
        (self.bin / f"{name}.txt").write_text(text)
        self.has(name, f"cat '{self.bin}/{name}.txt'; exit {status}")

    def unit(self, pid: int = 0) -> SystemdRestart:
        script = UNIT.format(pid=pid, started=self.started, secret=SECRET)
        program = self.has("systemctl", script.partition("\n")[2])
        return SystemdRestart(kind="systemd", host="h", unit="vllm.service", cli=(program,))

    async def evidence(
        self, restart: Restart | None = None, source: Source | None = None, **host: object
    ) -> Evidence:
        machine = self.server.host(**host)
        known = spec(machine, restart or self.unit())
        if source is not None:
            known = known.model_copy(update={"source": source})
        activities = HostActivities(Policies(known), self.state_dir)
        return await OnHost(activities, ActivityEnvironment()).evidence()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sshd, Path]]:
    folder = tmp_path_factory.mktemp("machine")
    programs = folder / "bin"
    programs.mkdir()
    with sshd_part.sshd(folder / "sshd", path=f"{programs}:/usr/bin:/bin") as running:
        yield running, programs


@pytest.fixture
def host(machine: tuple[Sshd, Path], state_dir: Path) -> GpuHost:
    server, programs = machine
    for each in programs.iterdir():
        each.unlink()
    return GpuHost(server, programs, state_dir)


def files(evidence: Evidence) -> dict[str, str]:
    assert evidence.path is not None
    return {file.name: file.read_text() for file in Path(evidence.path).iterdir()}


def lacks(evidence: Evidence, name: str) -> str:
    return next(line for line in evidence.missing if line.startswith(f"{name}:"))


async def test_a_gpu_off_the_bus_since_the_start_is_a_fault_and_its_lines_are_kept(
    host: GpuHost,
) -> None:
    since = host.started + timedelta(hours=1)
    log = said.logged(since, "usb 1-1: new device", said.MEMORY, said.BUS, said.REBOOT, said.OOM)
    host.prints("journalctl", log)
    evidence = await host.evidence()
    assert [fault.what for fault in evidence.faults] == [
        "Xid 79: GPU has fallen off the bus",
        "Xid 154: the driver asks for: Node Reboot Required",
    ]
    assert {fault.remedy for fault in evidence.faults} == {Remedy.REBOOT}
    assert evidence.faults[0].at == since + timedelta(seconds=2)
    kernel = files(evidence)["kernel.txt"]
    assert "usb" not in kernel
    assert all(line in kernel for line in (said.MEMORY, said.BUS, said.OOM))
    assert evidence.process is not None
    assert (evidence.process.status, evidence.process.started) == (HostStatus.RUNNING, "first")


async def test_what_the_kernel_said_before_the_start_is_kept_and_no_fault(host: GpuHost) -> None:
    host.prints("journalctl", said.logged(host.started - timedelta(minutes=1), said.BUS))
    evidence = await host.evidence()
    assert evidence.faults == []
    assert said.BUS in files(evidence)["kernel.txt"]


async def test_where_the_journal_shows_nothing_the_kernels_own_buffer_is_asked(
    host: GpuHost,
) -> None:
    host.prints("dmesg", said.dmesg(host.started + timedelta(hours=1), said.UNCONTAINED))
    assert [each.gpu for each in (await host.evidence()).faults] == ["0000:3b:00"]


async def test_a_kernel_log_that_may_not_be_read_is_listed_and_decides_nothing(
    host: GpuHost,
) -> None:
    host.has("dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted'; exit 1")
    evidence = await host.evidence()
    assert "Operation not permitted" in lacks(evidence, "kernel.txt")
    assert evidence.faults == []


async def test_the_operator_names_the_way_to_the_kernels_log(host: GpuHost) -> None:
    own = host.has("sudo", 'shift; exec "$@"')
    host.prints("dmesg", said.dmesg(host.started + timedelta(hours=1), said.GSP))
    way = [own, "-n", "dmesg", "--time-format", "iso"]
    evidence = await host.evidence(kernel_log=way)
    assert [fault.gpu for fault in evidence.faults] == ["0000:9b:00"]


async def test_what_nvidia_smi_says_is_a_fault_too(host: GpuHost) -> None:
    host.prints("nvidia-smi", said.smi(said.gpu(recovery="Reset", failed="Yes")))
    evidence = await host.evidence()
    assert [fault.remedy for fault in evidence.faults] == [Remedy.RESET, Remedy.HARDWARE]
    assert "Remapping Failure Occurred" in files(evidence)["nvidia-smi-q.txt"]
    assert "nvidia-smi.txt" in files(evidence)


async def test_a_gpu_that_nvidia_smi_cannot_reach_is_a_fault(host: GpuHost) -> None:
    host.prints("nvidia-smi", said.LOST_ONE, status=6)
    evidence = await host.evidence()
    assert [fault.gpu for fault in evidence.faults] == ["0000:3b:00"]
    assert "nvidia-smi.txt" not in files(evidence)


async def test_a_driver_that_hangs_is_cut_off_and_the_rest_is_there(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.evidence._SECONDS", 1.0)
    host.has("nvidia-smi", f"echo $$ > {host.bin}/pid; sleep 300")
    evidence = await host.evidence()
    assert lacks(evidence, "nvidia-smi-q.txt") == "nvidia-smi-q.txt: cut off after 1 s"
    assert "processes.txt" in files(evidence)
    assert is_gone(int((host.bin / "pid").read_text()))


async def test_where_every_command_hangs_all_has_its_bound_and_nothing_is_left(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.evidence._SECONDS", 1.0)
    monkeypatch.setattr("activities.evidence._WITHIN", 2.5)
    monkeypatch.setattr("activities.evidence._LEAST", 0.2)
    hang = f"echo $$ >> {host.bin}/pids; trap '' TERM; while :; do sleep 0.1; done"
    for name in ("systemctl", "journalctl", "dmesg", "nvidia-smi"):
        host.has(name, hang)
    unit = SystemdRestart(
        kind="systemd", host="h", unit="vllm.service", cli=(f"{host.bin}/systemctl",)
    )
    began = time.monotonic()
    evidence = await host.evidence(unit)
    assert time.monotonic() - began < 30
    assert "cut off after" in lacks(evidence, "unit.txt")
    assert lacks(evidence, "processes.txt") == "processes.txt: no time left after 2.5 s"
    pids = host.bin / "pids"
    started = [int(line) for line in pids.read_text().split()] if pids.exists() else []
    assert all(is_gone(pid) for pid in started)


@pytest.mark.parametrize(
    "leaves",
    [
        "(trap '' TERM; echo $BASHPID >> {pids}; exec sleep 300) & wait",
        (
            "(trap '' TERM; echo $BASHPID >> {pids}; exec sleep 300) & "
            "until [ -s {pids} ]; do sleep 0.02; done; echo on; exit 0"
        ),
        "sleep 300 & echo $! >> {pids}; sleep 300 & echo $! >> {pids}; wait",
    ],
)
async def test_no_child_of_a_command_is_left_on_the_host(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch, leaves: str
) -> None:
    monkeypatch.setattr("activities.evidence._SECONDS", 1.0)
    pids = host.bin / "children"
    program = host.bin / "identity"
    program.write_text("#!/bin/bash\n" + leaves.format(pids=pids))
    program.chmod(0o755)
    restart = CommandRestart(kind="command", host="h", argv=("true",), identity=(str(program),))
    await host.evidence(restart)
    children = [int(line) for line in pids.read_text().split()]
    assert children
    assert all(is_gone(pid) for pid in children)


async def test_a_stack_is_dumped_by_the_operators_tool_of_the_main_process(host: GpuHost) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "300")
    try:
        tool = host.has("py-spy", 'echo "$@"; cat /proc/$3/cmdline; echo " token=$SECRET_OF_IT"')
        unit = host.unit(process.pid)
        plain = await host.evidence(unit)
        dumped = await host.evidence(unit, stack_dump=[tool, "dump", "--pid"])
    finally:
        process.kill()
        await process.wait()
    assert "stack.txt" not in files(plain)
    assert files(dumped)["stack.txt"].startswith(f"dump --pid {process.pid}\nsleep\x00300")


async def test_a_stack_without_a_known_process_is_listed_as_missing(host: GpuHost) -> None:
    evidence = await host.evidence(host.unit(), stack_dump=["py-spy", "dump", "--pid"])
    assert "PID" in lacks(evidence, "stack.txt")


async def test_a_planted_secret_is_in_no_file(host: GpuHost) -> None:
    host.prints("journalctl", f"NVRM: api_key={SECRET}\nvllm[1]: HF_TOKEN={SECRET}\n")
    evidence = await host.evidence()
    kept = files(evidence)
    assert "--api-key [redacted] --port 8000" in kept["processes.txt"]
    assert SECRET not in "".join(kept.values())
    assert SECRET not in evidence.model_dump_json()


@pytest.fixture
async def page() -> AsyncIterator["Page"]:
    running = Page()
    server = await asyncio.start_server(running.answer, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    yield running
    server.close()


class Page:
    """A server of one page, which says what it was asked, or comes slowly, or without end."""

    def __init__(self) -> None:
        self.port, self.body, self.pause = 0, b'{"state": "idle"}', 0.0
        self.asked: list[str] = []

    @property
    def source(self) -> StatusSource:
        url = f"http://127.0.0.1:{self.port}/status"
        return StatusSource(kind="status", url=url, token=SecretRef(env="TOKEN_OF_THE_TEST"))

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(request)
        writer.write(b"HTTP/1.1 503 no\r\nConnection: close\r\n\r\n" + self.body)
        writer.write(request.encode())
        await writer.drain()
        await asyncio.sleep(self.pause)
        writer.close()


async def test_the_servers_page_is_kept_whatever_its_status_and_the_token_is_not(
    host: GpuHost, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_TEST", "xyzzy-plugh")
    kept = files(await host.evidence(source=page.source))["status-page.txt"]
    assert "Bearer xyzzy-plugh" in page.asked[0]
    assert kept.startswith('HTTP 503\n\n{"state": "idle"}GET /status HTTP/1.1')
    assert "xyzzy" not in kept


async def test_a_page_that_does_not_end_is_cut_off_and_what_came_is_kept(
    host: GpuHost, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_TEST", "x")
    monkeypatch.setattr("activities.pages.WITHIN", 0.5)
    page.pause = 5
    evidence = await host.evidence(source=page.source)
    assert lacks(evidence, "status-page.txt") == "status-page.txt: cut off after 0.5 s"
    assert '"state": "idle"' in files(evidence)["status-page.txt"]


async def test_of_a_page_without_end_the_first_mebibyte_is_kept(
    host: GpuHost, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_TEST", "x")
    page.body = b"vllm:tokens_total 1\n" * 100_000
    evidence = await host.evidence(source=page.source)
    assert "only the first 1024 KiB" in lacks(evidence, "status-page.txt")
    assert len(files(evidence)["status-page.txt"]) <= 1024 * 1024


async def test_a_page_that_is_not_there_and_a_token_that_is_not_set_are_listed(
    host: GpuHost, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = await host.evidence(source=page.source)
    assert "TOKEN_OF_THE_TEST is not set" in lacks(evidence, "status-page.txt")
    assert page.asked == []
    nowhere = StatusSource(kind="status", url=f"http://127.0.0.1:{free_port()}/status")
    evidence = await host.evidence(source=nowhere)
    assert "refused" in lacks(evidence, "status-page.txt")


async def test_the_page_is_kept_where_the_host_cannot_be_reached(
    host: GpuHost, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_TEST", "x")
    away = Host.model_validate({**host.server.host_at(free_port()).model_dump()})
    known = spec(away, host.unit()).model_copy(update={"source": page.source})
    server = OnHost(HostActivities(Policies(known), host.state_dir), ActivityEnvironment())
    evidence = await server.evidence()
    assert "status-page.txt" in files(evidence)
    assert lacks(evidence, "everything")


async def test_a_frozen_engines_pages_are_kept_and_it_is_sent_no_work(host: GpuHost) -> None:
    async with sim_vllm(load=2) as engine:
        await engine.say("freeze")
        kept = files(await host.evidence(source=engine.source()))
        assert await engine.asked() == 0
    assert "vllm:num_requests_running" in kept["engine-metrics.txt"]
    assert kept["engine-health.txt"].startswith("HTTP 200")
    assert "tiny" in kept["engine-models.txt"]


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has waited for yet counts as ended."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False
