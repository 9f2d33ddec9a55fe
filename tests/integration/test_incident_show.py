"""The story of an incident and the numbers of many, on a real Temporal and servers over real SSH.

The worker that healed is stopped half way, since most of it must be told without one.
"""

import asyncio
import os
import re
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from fleet.contracts.alerts import AlertMessage, Severity
from fleet.contracts.names import ALERT, alert_id, incident_id
from fleet.contracts.remediation import Outcome, Phase
from fleet.verdicts import Verdict
from simulator.heartbeat import Options
from simulator.host import SimHost, sim_host
from tests.parts.ended import Ended
from tests.parts.receiver import receiver
from tests.parts.stores import valkey
from tests.parts.temporal import DevServer, dev_server
from worker.connection import connect
from worker.incident import Story, UnknownError, find
from worker.settings import Settings
from worker.worker import build_worker

pytestmark = pytest.mark.anyio

STEADY = Path(sys.executable).with_name("steady")
UI = "http://temporal.example:8233"
FLEET = """
[fleet]
name = "test"
sweep_every = "1s"
temporal_ui = "{ui}"

[alerts]
webhook = {{ env = "STEADY_TEST_HOOK" }}

[defaults]
stale_after = "1s"
reading_max_age = "10s"
cooldown = "1s"
verify_after = "3s"

[hosts.sim]
address = "{host.address}"
port = {host.port}
user = "{host.user}"
key = "{host.key}"
known_hosts = "{host.known_hosts}"
"""
SERVER = """
[servers.{name}]
source = {{ kind = "redis", key = "worker:{name}" }}
restart = {{ kind = "docker", host = "sim", name = "{name}", stop_timeout = "1s" }}
policy = {{ persist_hung = "{wait}" }}
"""
#: ``healed`` is restarted at once; ``patient`` stays open for an hour.
WAITS = {"healed": "0s", "patient": "1h"}


@dataclass
class Place:
    temporal: DevServer
    client: Client
    host: SimHost
    folder: Path
    worker: AsyncExitStack = field(default_factory=AsyncExitStack)

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

    async def shown(self, name: str) -> Any:
        ended = await self.steady("incident", "show", name, "--json")
        assert ended.code == 0, ended.err
        return ended.document

    async def until(self, name: str, is_so: Callable[[Story], bool]) -> None:
        """Asked in this process, which is quicker than a command each time."""
        story: Story | None = None
        for _ in range(300):
            with suppress(UnknownError):
                story = await find(self.client, name)
                if is_so(story):
                    return
            await asyncio.sleep(0.2)
        pytest.fail(f"{name} never came to that: {story}")


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """One server was healed, another is hung and waits."""
    folder = tmp_path_factory.mktemp("incident")
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("STEADY_TEST_HOOK", stack.enter_context(receiver()).url("/hook"))
        temporal = await stack.enter_async_context(dev_server(folder / "temporal"))
        store = stack.enter_context(valkey(folder / "valkey"))
        workers = [
            Options(url=store.url, key=f"worker:{name}", name=name, boot=0.3, job=0.5, rest=0.5)
            for name in WAITS
        ]
        host = await stack.enter_async_context(sim_host(folder / "host", workers))
        settings = Settings(state_dir=folder / "state", embedded_store=store.url)
        client = await connect(settings, address=temporal.address)
        here = Place(temporal, client, host, folder)
        await stack.enter_async_context(here.worker)
        await here.worker.enter_async_context(build_worker(client, settings))
        file = folder / "fleet.toml"
        servers = "".join(SERVER.format(name=name, wait=wait) for name, wait in WAITS.items())
        file.write_text(FLEET.format(host=host, ui=UI) + servers)
        applied = await here.steady("apply", file)
        assert applied.code == 0, applied.err
        for name in WAITS:
            host.engine.freeze(name)
        await here.until("healed", lambda story: story.outcome is Outcome.RESOLVED)
        await here.until("healed", lambda story: all(each.delivered for each in story.alerts))
        await here.until("patient", lambda story: story.phase is Phase.PERSISTING)
        yield here


async def test_a_healed_one_is_told_from_the_first_observation_to_the_outcome(
    place: Place,
) -> None:
    story = await place.shown("healed")
    assert story["incident"].startswith("healed@")
    assert (story["server"], story["verdict"], story["phase"]) == ("healed", "hung", "closed")
    assert (story["outcome"], story["meaning"]) == ("resolved", "restarted, and healthy since")
    moments = [story[key] for key in ("since", "detected_at", "restarted_at", "recovered_at")]
    assert None not in moments
    assert moments == sorted(moments)
    assert story["recovered_at"] == story["closed_at"]
    assert (story["restarts"], [each["effect"] for each in story["commands"]]) == (1, ["done"])
    assert [(each["word"], each["left"]) for each in story["budget"]] == [("taken", 2)]
    assert story["evidence"][0]["path"].startswith(str(place.folder))
    assert Path(story["evidence"][0]["path"]).is_dir()
    assert {each["cause"] for each in story["alerts"]} == {"confirmed", "restarting", "resolved"}
    assert f"incident {story['incident']} opened" in [each["text"] for each in story["timeline"]]
    [run] = story["runs"]
    assert story["link"] == f"{UI}/namespaces/default/workflows/remediate%2Fhealed/{run}"
    assert story["complete"] is True
    assert len(story["runs"]) == 1


async def test_its_alerts_say_whether_they_were_delivered(place: Place) -> None:
    alerts = (await place.shown("healed"))["alerts"]
    assert [each["delivered"] for each in alerts] == [True, True, True]
    assert {each["severity"] for each in alerts} == {"notice"}
    assert alerts[0]["title"].startswith("healed is hung: ")


async def test_the_documented_keys_are_those_that_are_printed(place: Place) -> None:
    story = await place.shown("healed")
    assert set(story) == {*Story.model_fields, "link"}
    said = (await place.steady("incident", "show", "--help")).out.partition("JSON:")[2]
    parts = ("commands", "budget", "evidence", "alerts", "timeline")
    nested = {key for part in parts for key in story[part][0]}
    assert {*story, *nested} <= set(re.findall(r"\w+", said))


async def test_for_people_it_is_a_page_with_relative_times(place: Place) -> None:
    ended = await place.steady("incident", "show", "healed")
    assert ended.code == 0, ended.err
    head, *rest = ended.out.splitlines()
    assert head.startswith("healed@")
    page = "\n".join(rest)
    assert "  outcome    resolved: restarted, and healthy since" in page
    assert "  times      detected after " in page
    assert "restarted after" in page
    assert "  budget     +" in page
    assert f"  Temporal   {UI}/namespaces/" in page
    assert page.index("\nalerts\n") < page.index("\ntimeline\n")
    assert "notice confirmed: delivered" in page
    timeline = page.partition("\ntimeline\n")[2].splitlines()
    assert all(line.strip().startswith("+") for line in timeline)


@pytest.mark.parametrize("form", ["{incident}", "remediate/healed", "alert/{incident}/confirmed"])
async def test_it_is_found_under_each_of_its_names(place: Place, form: str) -> None:
    incident = (await place.shown("healed"))["incident"]
    assert (await place.shown(form.format(incident=incident)))["incident"] == incident


async def test_an_open_one_says_what_comes_next(place: Place) -> None:
    story = await place.shown("patient")
    assert (story["outcome"], story["closed_at"], story["restarted_at"]) == (None, None, None)
    assert story["next_at"] is not None
    assert story["complete"] is True
    page = (await place.steady("incident", "show", "patient")).out
    assert "  state      persisting; next: " in page


@pytest.mark.parametrize("name", ["heeled", "healed@20260101T000000.000Z", "'; drop", "alert/x"])
async def test_an_unknown_one_is_one_line_with_suggestions(place: Place, name: str) -> None:
    ended = await place.steady("incident", "show", name)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"there is no incident {name!r}: did you mean ")
    assert "healed" in ended.err
    assert ended.err.count("\n") == 1


async def test_incidents_are_counted_and_timed(place: Place) -> None:
    document = (
        await place.steady("incidents", "--since", "1d", "--by", "server", "--json")
    ).document
    assert document["by"] == "server"
    assert document["problems"] == []
    healed, patient = document["rows"]
    assert (healed["group"], healed["count"], healed["open"]) == ("healed", 1, 0)
    assert healed["outcomes"] == {"resolved": 1}
    assert 0 < healed["detect_s"] < healed["restart_s"] < healed["recover_s"] < 60
    assert (patient["group"], patient["count"], patient["open"]) == ("patient", 1, 1)
    assert (patient["restart_s"], patient["recover_s"], patient["outcomes"]) == (None, None, {})


async def test_by_week_and_in_all_they_are_a_table(place: Place) -> None:
    week = (await place.steady("incidents", "--by", "week")).out
    year, number, _ = datetime.now(UTC).isocalendar()
    assert f"{year}-W{number:02d}" in week
    assert "1 resolved" in week
    [row] = (await place.steady("incidents", "--since", "1h", "--json")).document["rows"]
    assert (row["group"], row["count"]) == ("all", 2)
    [one] = (
        await place.steady("incidents", "--since", "1h", "--server", "patient", "--json")
    ).document["rows"]
    assert one["count"] == 1


@pytest.mark.parametrize(
    "arguments", [("--since", "a week"), ("--since", "1d", "--open"), ("--by", "day")]
)
async def test_wrong_usage_is_exit_code_2(place: Place, arguments: tuple[str, ...]) -> None:
    assert (await place.steady("incidents", *arguments)).code == 2


class TestWithoutAWorker:
    @pytest.fixture(scope="class", autouse=True)
    async def no_worker(self, place: Place) -> None:
        await place.worker.aclose()

    async def test_a_closed_one_is_told_all_the_same(self, place: Place) -> None:
        story = await place.shown("healed")
        assert (story["outcome"], story["complete"]) == ("resolved", True)
        assert [each["word"] for each in story["budget"]] == ["taken"]
        assert len(story["alerts"]) == 3
        assert all(each["title"] for each in story["alerts"])

    async def test_of_an_open_one_the_history_is_told_and_the_lack_is_said(
        self, place: Place
    ) -> None:
        story = await place.shown("patient")
        assert story["complete"] is False
        assert story["incident"].startswith("patient@")
        assert (story["phase"], story["verdict"]) == ("persisting", "hung")
        assert story["detected_at"] is not None
        assert [each["cause"] for each in story["alerts"]] == ["confirmed"]
        assert [each["text"] for each in story["timeline"]] == [
            f"incident {story['incident']} opened"
        ]
        page = (await place.steady("incident", "show", "patient")).out
        assert page.endswith(
            "no worker answers for it, so its newest words are missing: start `steady worker`\n"
        )

    async def test_the_numbers_say_what_they_lack(self, place: Place) -> None:
        ended = await place.steady("incidents", "--since", "1d", "--json")
        assert ended.document["rows"][0]["count"] == 1
        assert ended.document["problems"] == ["1 runs could not be read: no worker, or no result"]

    async def test_one_that_was_terminated_has_no_outcome_and_keeps_its_story(
        self, place: Place
    ) -> None:
        incident = (await place.shown("patient"))["incident"]
        await place.client.get_workflow_handle("remediate/patient").terminate()
        await place.until("patient", lambda story: story.phase is Phase.CLOSED)
        story = await place.shown(incident)
        assert (story["outcome"], story["meaning"]) == (
            None,
            "the workflow terminated without a result",
        )
        assert story["complete"] is True

    async def test_one_of_which_people_were_only_told_is_told_by_its_alert(
        self, place: Place
    ) -> None:
        server = f"gone-{uuid.uuid4().hex[:8]}"
        now = datetime.now(UTC)
        message = AlertMessage(
            server=server,
            incident=incident_id(server, now),
            cause="missing",
            severity=Severity.PAGE,
            title=f"{server} is missing",
            verdict=Verdict.MISSING,
            since=now,
        )
        id_ = alert_id(message.incident, message.cause)
        await place.client.start_workflow(ALERT, message, id=id_, task_queue="nobody")
        await place.until(message.incident, lambda story: story.verdict is Verdict.MISSING)
        story = await place.shown(message.incident)
        assert (story["workflow_id"], story["phase"], story["runs"]) == (id_, None, [])
        assert [each["delivered"] for each in story["alerts"]] == [None]
        page = (await place.steady("incident", "show", message.incident)).out
        assert "page missing: on its way" in page
