"""The command line against a real Temporal, a real worker, and servers restarted over real SSH."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simulator.heartbeat import Options
from simulator.host import SimHost, sim_host
from tests.parts.ended import Ended
from tests.parts.stores import valkey
from tests.parts.temporal import DevServer, dev_server
from worker.cli import app
from worker.connection import connect
from worker.settings import Settings
from worker.worker import build_worker

pytestmark = pytest.mark.anyio

STEADY = Path(sys.executable).with_name("steady")

#: What each server is for; a frozen one stays open for an hour where nobody says a word.
POLICIES = {
    "calm": "",
    "cancelled": 'persist_hung = "1h"',
    "snoozed": 'persist_hung = "1h"',
    "approved": 'mode = "approve"\npersist_hung = "0s"',
    "ordered": "budget = { limit = 1 }",
    "late": 'cooldown = "15s"\nverify_after = "15s"',
}

DEFAULTS = """
[defaults]
stale_after = "1s"
reading_max_age = "10s"
cooldown = "1s"
verify_after = "3s"
"""


@dataclass
class Place:
    """A running steady: where it is, the fleet file, and the machine with the servers."""

    temporal: DevServer
    host: SimHost
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "fleet.toml"

    async def steady(self, *arguments: object) -> Ended:
        process = await asyncio.create_subprocess_exec(
            STEADY,
            *map(str, arguments),
            env={
                **os.environ,
                "TEMPORAL_ADDRESS": self.temporal.address,
                "STEADY_STATE_DIR": str(self.folder / "state"),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Ended(process.returncode or 0, out.decode(), err.decode())

    async def status(self, name: str) -> Any:
        return (await self.steady("status", name, "--json")).document

    async def freeze(self, name: str, phase: str) -> None:
        """Freeze a server, and wait until its incident has come to a phase."""
        self.host.engine.freeze(name)

        async def is_there() -> bool:
            return [each["phase"] for each in (await self.status(name))["open"]] == [phase]

        await until(is_there)


async def until(is_so: Callable[[], Awaitable[bool]], within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not await is_so():
        assert time.monotonic() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.5)


def fleet_text(host: SimHost, policies: dict[str, str]) -> str:
    servers = "".join(
        f'[servers.{name}]\nsource = {{ kind = "redis", key = "worker:{name}" }}\n'
        f'restart = {{ kind = "docker", host = "sim", name = "{name}", stop_timeout = "1s" }}\n'
        f"[servers.{name}.policy]\n{policy}\n"
        for name, policy in policies.items()
    )
    return (
        f'[fleet]\nname = "test"\nsweep_every = "1s"\n{DEFAULTS}\n'
        "[storm]\nrestarts_at_once = 20\nat_least = 20\n"
        f'[hosts.sim]\naddress = "{host.address}"\nport = {host.port}\nuser = "{host.user}"\n'
        f'key = "{host.key}"\nknown_hosts = "{host.known_hosts}"\n{servers}'
    )


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("cli")
    async with AsyncExitStack() as stack:
        temporal = await stack.enter_async_context(dev_server(folder / "temporal"))
        store = stack.enter_context(valkey(folder / "valkey"))
        workers = [
            Options(url=store.url, key=f"worker:{name}", name=name, boot=0.3, job=0.5, rest=0.5)
            for name in POLICIES
        ]
        host = await stack.enter_async_context(sim_host(folder / "host", workers))
        settings = Settings(state_dir=folder / "state", embedded_store=store.url)
        client = await connect(settings, address=temporal.address)
        await stack.enter_async_context(build_worker(client, settings))
        here = Place(temporal, host, folder)
        here.file.write_text(fleet_text(host, POLICIES))
        applied = await here.steady("apply", here.file)
        assert applied.code == 0, applied.err
        assert applied.out.splitlines()[: len(POLICIES)] == [
            f"+ servers.{name}" for name in sorted(POLICIES)
        ]
        assert applied.out.splitlines()[-1] == "version 1 is in force; schedules: health/0"
        yield here
        await asyncio.sleep(0.2)


class TestApply:
    async def test_the_same_file_again_changes_nothing(self, place: Place) -> None:
        again = await place.steady("apply", place.file)
        assert again.code == 0
        assert again.out.splitlines()[0] == "nothing changes: version 1 is the same fleet"

    async def test_a_dry_run_shows_what_would_change_and_changes_nothing(
        self, place: Place, tmp_path: Path
    ) -> None:
        other = tmp_path / "fleet.toml"
        policies = {**POLICIES, "calm": "observations = 3"}
        other.write_text(fleet_text(place.host, policies))
        shown = await place.steady("apply", "--dry-run", other)
        assert shown.out.splitlines() == [
            "~ servers.calm.policy.observations: default → 3",
            "this alters calm",
        ]
        document = (await place.steady("apply", "--dry-run", "--json", other)).document
        assert document == {
            "applied": False,
            "version": 1,
            "added": [],
            "removed": [],
            "altered": ["calm"],
            "edits": [{"key": "servers.calm.policy.observations", "before": None, "after": 3}],
        }
        assert (await place.steady("status", "--json")).document["version"] == 1

    async def test_nothing_is_removed_without_a_yes(self, place: Place, tmp_path: Path) -> None:
        other = tmp_path / "fleet.toml"
        fewer = {name: policy for name, policy in POLICIES.items() if name != "calm"}
        other.write_text(fleet_text(place.host, fewer))
        refused = await place.steady("apply", other)
        assert refused.code == 1
        assert refused.out == "- servers.calm\n"
        assert refused.err == "nothing was changed: --yes is needed to remove calm\n"


class TestStatus:
    async def test_shows_every_server_and_what_it_does(self, place: Place) -> None:
        async def is_seen() -> bool:
            return (await place.status("calm"))["servers"][0]["verdict"] in ("busy", "idle")

        await until(is_seen)
        document = (await place.steady("status", "--json")).document
        assert document["fleet"] == "test"
        assert [each["server"] for each in document["servers"]] == sorted(POLICIES)
        shown = await place.steady("status")
        assert shown.code == 0
        for name in POLICIES:
            assert f"\n{name} " in shown.out

    async def test_a_name_that_is_none_gets_the_nearest(self, place: Place) -> None:
        ended = await place.steady("status", "clam")
        assert ended.code == 2
        assert ended.err == "there is no server 'clam' in the fleet: did you mean calm?\n"


class TestPause:
    async def test_of_a_server_and_its_end(self, place: Place) -> None:
        paused = await place.steady("pause", "calm", "--for", "2h", "--why", "new driver")
        assert paused.code == 0, paused.err
        assert paused.out.startswith("calm is paused until 2")
        said = (await place.status("calm"))["servers"][0]["paused"]
        assert said["why"] == "new driver"
        assert "@" in said["who"]
        resumed = await place.steady("resume", "calm")
        assert (resumed.code, resumed.out) == (0, "calm: its pause is ended\n")
        assert (await place.status("calm"))["servers"][0]["paused"] is None
        assert (await place.steady("resume", "calm")).out == "calm: was not paused\n"

    async def test_of_the_fleet_is_another_thing_than_that_of_a_server(self, place: Place) -> None:
        paused = await place.steady("pause", "--for", "1h", "--json")
        assert paused.document["server"] is None
        assert paused.document["until"]
        resumed = await place.steady("resume", "calm")
        assert resumed.err == "the whole fleet is still paused: `steady resume` ends that\n"
        assert (await place.steady("resume")).code == 0
        assert (await place.steady("status", "--json")).document["fleet_pause"] is None

    async def test_longer_than_a_month_is_refused_with_the_remedy(self, place: Place) -> None:
        ended = await place.steady("pause", "calm", "--for", "100d")
        assert ended.code == 2
        assert "alert_only" in ended.err

    async def test_of_a_server_that_is_none_is_refused(self, place: Place) -> None:
        ended = await place.steady("pause", "nobody", "--for", "1h")
        assert ended.code == 2
        assert ended.err.startswith("there is no server 'nobody' in the fleet: ")


class TestAWordToAnIncident:
    @pytest.mark.parametrize(
        "command", [("cancel",), ("approve",), ("snooze", "--for", "1h")], ids=lambda each: each[0]
    )
    async def test_without_an_incident_there_is_nobody_to_hear_it(
        self, place: Place, command: tuple[str, ...]
    ) -> None:
        ended = await place.steady(*command, "calm")
        assert ended.code == 1
        assert ended.err.startswith("no incident of calm is open: ")
        assert ended.err.count("\n") == 1

    async def test_cancel_waits_until_it_is_cancelled(self, place: Place) -> None:
        await place.freeze("cancelled", "persisting")
        ended = await place.steady("cancel", "cancelled", "--why", "I am on it", "--json")
        assert ended.code == 0, ended.err
        assert ended.document["answer"] == "cancelled"
        assert ended.document["effect"] is True

        async def is_listed() -> bool:
            shown = await place.steady("incidents", "--server", "cancelled", "--json")
            return [each["outcome"] for each in shown.document["incidents"]] == ["cancelled"]

        await until(is_listed)
        story = await place.steady("status", "cancelled")
        assert "I am on it" in story.out
        assert place.host.restarts()["cancelled"] == 0

    async def test_snooze_says_until_when(self, place: Place) -> None:
        await place.freeze("snoozed", "persisting")
        ended = await place.steady("snooze", "snoozed", "--for", "30m")
        assert ended.code == 0, ended.err
        assert ended.out.startswith("snoozed: snoozed until 2")
        shown = await place.steady("incidents", "--open", "--json")
        assert "snoozed" in [each["server"] for each in shown.document["incidents"]]

    async def test_longer_than_a_week_is_no_snooze(self, place: Place) -> None:
        await place.freeze("snoozed", "persisting")
        ended = await place.steady("snooze", "snoozed", "--for", "30d")
        assert ended.code == 1
        assert ended.out.startswith("snoozed: not understood: ")

    async def test_approve_lets_the_restart_happen(self, place: Place) -> None:
        await place.freeze("approved", "waiting for approval")
        assert place.host.restarts()["approved"] == 0
        ended = await place.steady("approve", "approved")
        assert (ended.code, ended.out) == (0, "approved: approved\n"), ended.err

        async def is_resolved() -> bool:
            shown = await place.steady("incidents", "--server", "approved", "--json")
            return [each["outcome"] for each in shown.document["incidents"]] == ["resolved"]

        await until(is_resolved)
        assert place.host.restarts()["approved"] == 1


class TestRestart:
    async def test_by_hand_is_followed_to_its_end_and_counts_in_the_budget(
        self, place: Place
    ) -> None:
        done = await place.steady("restart", "ordered", "--why", "new driver", "--wait")
        assert done.code == 0, done.err
        first, last = done.out.splitlines()
        assert first == "ordered: accepted: the restart is under way"
        assert last.startswith("ordered: resolved: ")
        assert "new driver" in done.err
        assert place.host.restarts()["ordered"] == 1
        refused = await place.steady("restart", "ordered", "--json")
        assert refused.code == 1
        assert refused.document["answer"].startswith("refused: ")
        assert refused.document["effect"] is False
        assert place.host.restarts()["ordered"] == 1

    async def test_that_was_sent_can_not_be_cancelled(self, place: Place) -> None:
        accepted = await place.steady("restart", "late")
        assert accepted.code == 0, accepted.err
        late = await place.steady("cancel", "late")
        assert late.code == 1
        assert late.out.startswith("late: too late, the command was sent")

    async def test_of_a_server_that_is_none_is_refused(self, place: Place) -> None:
        ended = await place.steady("restart", "nobody")
        assert ended.code == 2
        assert ended.err.startswith("there is no server 'nobody' in the fleet: ")


async def test_the_audit_is_of_the_fleet_in_force(place: Place) -> None:
    document = (await place.steady("audit", "--json")).document
    assert document["fleet"] == "test"
    hung = [row for row in document["verdicts"] if row["verdict"] == "hung"]
    assert sorted(name for row in hung for name in row["servers"]) == sorted(POLICIES)


async def test_ssh_scan_prints_a_line_that_known_hosts_takes(place: Place) -> None:
    ended = await place.steady("ssh-scan", place.host.address, "--port", place.host.port)
    assert ended.code == 0, ended.err
    [known] = place.host.known_hosts.read_text().splitlines()
    assert ended.out.startswith(known)
    assert "SHA256:" in ended.err


async def test_incidents_for_people_is_a_table(place: Place) -> None:
    assert (await place.steady("incidents")).code == 0


class TestNoFleetOrNoWorker:
    @pytest.fixture(scope="class")
    async def bare(self, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
        folder = tmp_path_factory.mktemp("bare")
        async with (
            dev_server(folder / "temporal") as temporal,
            sim_host(folder / "host", []) as host,
        ):
            here = Place(temporal, host, folder)
            here.file.write_text(fleet_text(host, {"calm": ""}))
            yield here

    @pytest.mark.parametrize(
        "command", [("status",), ("cancel", "a"), ("restart", "a"), ("pause", "--for", "1h")]
    )
    async def test_without_a_fleet_it_is_said_how_to_apply_one(
        self, bare: Place, command: tuple[str, ...]
    ) -> None:
        ended = await bare.steady(*command)
        assert ended.code == 1
        assert ended.err == "no fleet has been applied yet: `steady apply FILE`, or `steady up`\n"

    async def test_incidents_of_an_empty_server_are_none(self, bare: Place) -> None:
        ended = await bare.steady("incidents")
        assert (ended.code, ended.out) == (0, "no incidents\n")

    async def test_without_a_worker_the_remedy_is_a_worker(
        self, bare: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In this process, so that its patience can be shortened."""
        monkeypatch.setattr("worker.apply._PATIENCE", timedelta(seconds=3))
        monkeypatch.setattr("worker.client.PATIENCE", timedelta(seconds=3))
        monkeypatch.setenv("TEMPORAL_ADDRESS", bare.temporal.address)
        monkeypatch.setenv("STEADY_STATE_DIR", str(bare.folder / "state"))
        applied = await asyncio.to_thread(CliRunner().invoke, app, ["apply", str(bare.file)])
        assert applied.exit_code == 3
        assert "`steady worker`" in applied.stderr
        asked = await asyncio.to_thread(CliRunner().invoke, app, ["status"])
        assert asked.exit_code == 3
        assert asked.stderr == (
            "no worker answers: start one with `steady worker`, or all with `steady up`\n"
        )
