"""``steady worker --listen``: what it says of itself while a server is healed, and when all dies.

The story is played once, with real processes; each test looks at what was seen on the way.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

from fleet.contracts.fleet import ApplyRequest
from fleet.contracts.names import remediation_id
from fleet.contracts.remediation import Outcome, RemediationStatus
from simulator.host import sim_host
from tests.parts.ports import free_port
from tests.parts.receiver import Receiver, receiver
from tests.parts.rig import STEADY
from tests.parts.stores import valkey
from tests.parts.temporal import dev_server
from worker.apply import apply_fleet
from worker.demo_fleet import (
    BROKEN,
    BROKEN_BUDGET,
    FREEZES,
    HEALTHY,
    RECOVERS,
    WORKERS,
    Pace,
    demo_fleet,
    simulated_servers,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(420)]

TOKEN = "planted-switch-token"
PACE = Pace(sweep="2s", probe="1h", budget=2, window="1h")

Samples = dict[tuple[str, str], float]


@dataclass
class Worker:
    port: int
    log: Path
    process: subprocess.Popen[bytes]

    async def ask(self, path: str, accept: str = "", within: float = 30) -> httpx.Response:
        async with httpx.AsyncClient(timeout=within) as client:
            url = f"http://127.0.0.1:{self.port}{path}"
            return await client.get(url, headers={"Accept": accept} if accept else {})

    async def health(self) -> int:
        try:
            return (await self.ask("/health")).status_code
        except httpx.TransportError:
            return 0

    async def metrics(self) -> Samples:
        """Every sample, by its name and the value of its only label."""
        text = (await self.ask("/metrics")).text
        return {
            (sample.name, ",".join(sample.labels.values())): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def comes_to(self, status: int, within: float = 60) -> None:
        async def is_so() -> bool:
            return await self.health() == status

        await until(is_so, f"/health answers {status}", within)


@dataclass
class Story:
    """What was seen while it was played."""

    inbox: Receiver
    healed: RemediationStatus
    before: Samples
    after: Samples
    metrics_text: str
    metrics_open: httpx.Response
    second: Samples
    again: Samples
    stopped: str
    went_on: int
    dead: httpx.Response
    dead_metrics: Samples
    logs: str


async def until(is_so: Callable[[], Awaitable[bool]], what: str, within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not await is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not come in {within:g} s: {what}")
        await asyncio.sleep(0.3)


@contextmanager
def working(folder: Path, name: str, variables: dict[str, str]) -> Iterator[Worker]:
    port, log = free_port(), folder / f"{name}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(STEADY), "worker", "--listen", f"127.0.0.1:{port}"],
            env=variables,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    try:
        yield Worker(port, log, process)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
async def story(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Story]:
    folder = tmp_path_factory.mktemp("watch")
    async with AsyncExitStack() as stack:
        enter = stack.enter_context
        temporal = await stack.enter_async_context(dev_server(folder / "temporal", in_file=True))
        store, inbox = enter(valkey(folder / "valkey")), enter(receiver())
        host = await stack.enter_async_context(
            sim_host(folder / "host", simulated_servers(store.url, {}))
        )
        (folder / "webhook").write_text(inbox.url("/alerts"))
        (folder / "switch").write_text(inbox.url(f"/ping/{TOKEN}"))
        variables = _variables(folder, temporal.address, store.url)
        first = enter(working(folder, "first", variables))
        client = await temporal.client()
        fleet = demo_fleet(host, PACE, folder / "webhook")
        switch = {"dead_mans_switch": {"file": str(folder / "switch")}}
        alerts = fleet.alerts.model_validate({**fleet.alerts.model_dump(), **switch})
        await apply_fleet(
            client,
            ApplyRequest(fleet=fleet.model_copy(update={"alerts": alerts}), search_attributes=True),
        )
        await first.comes_to(200)
        await _all_seen(first)
        before = await first.metrics()
        host.engine.freeze(FREEZES)
        healed = await _healed(client, FREEZES)
        await asyncio.to_thread(inbox_has, inbox, f"/ping/{TOKEN}")
        await _counted(first)
        after, text = await first.metrics(), (await first.ask("/metrics")).text
        wanted = "application/openmetrics-text; version=1.0.0"
        opened = await first.ask("/metrics", accept=wanted)
        second = enter(working(folder, "second", variables))
        await second.comes_to(200)
        await _counted(second)
        both = await second.metrics()
        first.process.kill()
        first.process.wait()
        restarted = enter(working(folder, "restarted", variables))
        await restarted.comes_to(200)
        await _counted(restarted)
        again = await restarted.metrics()
        stopped, went_on = await _stop_for_a_while(restarted)
        temporal.kill()
        await restarted.comes_to(503)
        yield Story(
            inbox=inbox,
            healed=healed,
            before=before,
            after=after,
            metrics_text=text,
            metrics_open=opened,
            second=both,
            again=again,
            stopped=stopped,
            went_on=went_on,
            dead=await restarted.ask("/health"),
            dead_metrics=await restarted.metrics(),
            logs="".join(log.read_text() for log in (first.log, second.log, restarted.log)),
        )


def _variables(folder: Path, temporal: str, store: str) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TEMPORAL_", "STEADY_"))
    }
    return inherited | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "TEMPORAL_ADDRESS": temporal,
        "STEADY_STATE_DIR": str(folder / "state"),
        "STEADY_EMBEDDED_STORE": store,
        "STEADY_GRACEFUL_SHUTDOWN": "5s",
        "STEADY_LOG_LEVEL": "debug",
    }


def inbox_has(inbox: Receiver, path: str) -> None:
    deadline = time.monotonic() + 90
    while not any(request.path == path for request in inbox.received):
        assert time.monotonic() < deadline, f"nothing came to {path}"
        time.sleep(0.3)


async def _all_seen(worker: Worker) -> None:
    async def seen() -> bool:
        shown = await worker.metrics()
        return shown["steady_servers", "unknown"] == 0 and _judged(shown) == len(WORKERS)

    await until(seen, "a verdict of every server")


def _judged(shown: Samples) -> float:
    return sum(value for (name, _), value in shown.items() if name == "steady_servers")


async def _healed(client: Any, server: str) -> RemediationStatus:
    async def is_there() -> bool:
        listed = client.list_workflows(f"WorkflowId = '{remediation_id(server)}'")
        return any([run.close_time is not None async for run in listed])

    await until(is_there, f"the remediation of {server} has ended", within=90)
    status: RemediationStatus = await client.get_workflow_handle(
        remediation_id(server), result_type=RemediationStatus
    ).result()
    return status


async def _counted(worker: Worker) -> None:
    """Temporal lists an end a moment after it, and a scrape is cached for five seconds."""

    async def is_counted() -> bool:
        shown = await worker.metrics()
        ended = shown["steady_incidents_total", Outcome.RESOLVED]
        told = shown["steady_alerts_total", "delivered"]
        return ended == 1 and told >= 3 and ("steady_restart_budget_left", FREEZES) in shown

    await until(is_counted, "the incident is counted")


async def _stop_for_a_while(worker: Worker) -> tuple[str, int]:
    """What a probe gets from a stopped process, and from the same one when it goes on."""
    worker.process.send_signal(signal.SIGSTOP)
    try:
        answer = await worker.ask("/health", within=2)
        said = str(answer.status_code)
    except httpx.TimeoutException as problem:
        said = type(problem).__name__
    finally:
        worker.process.send_signal(signal.SIGCONT)
    await worker.comes_to(200)
    return said, await worker.health()


async def test_a_healed_server_is_counted_once_with_its_times(story: Story) -> None:
    assert story.healed.outcome is Outcome.RESOLVED
    assert (story.healed.since, story.healed.closed_at) != (None, None)
    assert story.before["steady_incidents_total", Outcome.RESOLVED] == 0
    assert story.before["steady_time_to_recover_seconds_count", ""] == 0
    shown = story.after
    assert shown["steady_incidents_total", Outcome.RESOLVED] == 1
    for name in ("detect", "restart", "recover"):
        assert shown[f"steady_time_to_{name}_seconds_count", ""] == 1
    assert story.healed.since is not None
    assert story.healed.closed_at is not None
    assert story.healed.detected_at is not None
    began = story.healed.since
    recovered = (story.healed.closed_at - began).total_seconds()
    detected = (story.healed.detected_at - began).total_seconds()
    assert shown["steady_time_to_recover_seconds_sum", ""] == pytest.approx(recovered)
    assert shown["steady_time_to_detect_seconds_sum", ""] == pytest.approx(detected)
    assert detected < shown["steady_time_to_restart_seconds_sum", ""] < recovered


async def test_the_restart_is_gone_from_the_budget_of_that_server_only(story: Story) -> None:
    left = {
        label: value
        for (name, label), value in story.after.items()
        if name == "steady_restart_budget_left"
    }
    assert left == {HEALTHY: 2, RECOVERS: 2, BROKEN: BROKEN_BUDGET, FREEZES: 1}
    assert story.after["steady_restart_budget_limit", FREEZES] == 2


async def test_sweeps_have_an_age_and_servers_a_verdict(story: Story) -> None:
    assert 0 <= story.before["steady_sweep_age_seconds", "0"] < 60
    assert story.before["steady_sweep_interval_seconds", "0"] == 2
    assert story.after["steady_sweeps_total", "0"] > story.before["steady_sweeps_total", "0"]
    assert _judged(story.before) == len(WORKERS)
    assert story.before["steady_servers", "hung"] == 0


async def test_alerts_that_arrived_are_counted_and_none_waits(story: Story) -> None:
    alerts = [request for request in story.inbox.received if request.path == "/alerts"]
    assert story.after["steady_alerts_total", "delivered"] == len(alerts)
    assert story.after["steady_alerts_total", "undelivered"] == 0
    assert story.after["steady_alerts_waiting", ""] == 0


@pytest.mark.parametrize("seen_by", ["second", "again"], ids=["a second worker", "one anew"])
async def test_what_temporal_knows_is_the_same_on_every_worker_and_after_a_restart(
    story: Story, seen_by: str
) -> None:
    names = ("steady_incidents", "steady_time_to", "steady_alerts", "steady_restart_budget")

    def known(samples: Samples) -> Samples:
        return {key: value for key, value in samples.items() if key[0].startswith(names)}

    assert known(getattr(story, seen_by)) == known(story.after)


async def test_what_only_one_process_knows_says_so(story: Story) -> None:
    families = {f.name: f for f in parser.text_string_to_metric_families(story.metrics_text)}
    own = {name for name, each in families.items() if each.documentation.startswith("This worker")}
    assert own == {
        "steady_worker_healthy",
        "steady_worker_sign_age_seconds",
        "steady_worker_activities",
        "steady_dead_mans_switch_pings",
    }
    assert story.after["steady_worker_healthy", ""] == 1
    assert story.after["steady_worker_activities_total", "restart_server,completed"] == 1
    assert story.again["steady_worker_activities_total", "read_shard,completed"] >= 0
    assert ("steady_worker_activities_total", "restart_server,completed") not in story.again


async def test_a_scraper_that_speaks_openmetrics_gets_it(story: Story) -> None:
    kind = story.metrics_open.headers["content-type"]
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    families = openmetrics.text_string_to_metric_families(story.metrics_open.text)  # type: ignore[no-untyped-call]
    assert "steady_incidents" in {family.name for family in families}


async def test_a_stopped_process_answers_nothing_and_is_well_when_it_goes_on(story: Story) -> None:
    assert story.stopped == "ReadTimeout"
    assert story.went_on == 200


async def test_when_temporal_has_died_health_is_503_and_says_so(story: Story) -> None:
    assert story.dead.status_code == 503
    said = story.dead.json()
    assert said["status"] == "failing"
    assert any(why.startswith("Temporal has not answered for ") for why in said["why"])
    # Ages are told to a tenth of a second.
    assert said["ages"]["temporal"] >= 30


async def test_when_temporal_has_died_metrics_say_what_was_known_and_how_old_it_is(
    story: Story,
) -> None:
    assert story.dead_metrics["steady_worker_healthy", ""] == 0
    assert story.dead_metrics["steady_sweep_age_seconds", "0"] > 20
    assert story.dead_metrics["steady_incidents_total", Outcome.RESOLVED] == 1


async def test_the_switch_was_pinged_and_its_url_stands_in_no_log(story: Story) -> None:
    pings = [request for request in story.inbox.received if request.path == f"/ping/{TOKEN}"]
    assert {request.method for request in pings} == {"GET"}
    assert story.after["steady_dead_mans_switch_pings_total", "delivered"] >= 1
    assert "working" in story.logs
    assert TOKEN not in story.logs
