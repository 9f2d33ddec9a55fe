"""What a scrape shows, read back with Prometheus' own parser."""

import asyncio
import re
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import parser
from temporalio.service import RPCError, RPCStatusCode

from fleet.config import Fleet
from fleet.contracts.fleet import FleetState, Pause
from fleet.contracts.guard import GuardState, Hold, HostLedger, Incident, Take, TakeRequest
from fleet.contracts.remediation import Outcome, Phase, RemediationStatus
from fleet.contracts.storm import Lease, StormState, Suspicion
from fleet.contracts.sweep import SweepResult
from fleet.guard import founded, take
from fleet.judge import Memory
from fleet.policy import RollingBudget
from fleet.verdicts import Verdict
from worker import census as census_part
from worker import scrape as scrape_part
from worker.blocked import REASONS, OpenRun, blocked
from worker.census import Census, ClosedIncident, _Budgets, _Machines, _machines, verdicts
from worker.metrics import Metrics
from worker.scrape import Scrape
from worker.sweeps import Shard
from worker.vitals import Vitals

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring.md"
BEGAN = datetime(2026, 11, 30, 10, tzinfo=UTC)
EVERY = timedelta(seconds=30)

Samples = dict[tuple[str, str], float]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(Vitals())


def samples(metrics: Metrics) -> Samples:
    """Every sample, by its name and its labels' values."""
    text, _ = metrics.render("")
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in parser.text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def ended(
    outcome: Outcome | None = Outcome.RESOLVED,
    *,
    incident: str = "gpu-1@a",
    detected: int = 30,
    closed: int = 600,
    restarted: int | None = None,
) -> ClosedIncident:
    """A run that ended so many seconds after the first observation."""
    status = RemediationStatus(
        server="gpu-1",
        incident=incident,
        phase=Phase.CLOSED,
        outcome=outcome,
        since=BEGAN,
        detected_at=BEGAN + timedelta(seconds=detected),
        closed_at=BEGAN + timedelta(seconds=closed),
        restarts=0 if restarted is None else 1,
    )
    at = BEGAN + timedelta(seconds=restarted) if restarted is not None else None
    return ClosedIncident(status, at)


class TestThePage:
    def test_has_every_outcome_verdict_and_phase_from_the_start(self, metrics: Metrics) -> None:
        """A series that appears with its first incident hides that incident from ``increase``."""
        shown = samples(metrics)
        assert {shown["steady_incidents_total", outcome] for outcome in Outcome} == {0}
        assert {shown["steady_servers", verdict] for verdict in (*Verdict, "unknown")} == {0}
        assert {shown["steady_incidents_open", phase] for phase in Phase} == {0}
        for result in ("delivered", "undelivered"):
            assert shown["steady_alerts_total", result] == 0

    def test_counts_a_healed_incident_with_its_three_times(self, metrics: Metrics) -> None:
        metrics.show(Census(closed=[ended(detected=30, restarted=180, closed=800)]), [])
        shown = samples(metrics)
        assert shown["steady_incidents_total", Outcome.RESOLVED] == 1
        for name, seconds in (("detect", 30), ("restart", 180), ("recover", 800)):
            assert shown[f"steady_time_to_{name}_seconds_count", ""] == 1
            assert shown[f"steady_time_to_{name}_seconds_sum", ""] == seconds

    def test_detects_and_first_restarts_an_incident_of_several_runs_once(
        self, metrics: Metrics
    ) -> None:
        first = ended(Outcome.RESTART_FAILED, detected=30, closed=200, restarted=180)
        second = ended(Outcome.RESOLVED, detected=210, closed=900, restarted=180)
        metrics.show(Census(closed=[first]), [])
        metrics.show(Census(closed=[second]), [])
        shown = samples(metrics)
        assert shown["steady_incidents_total", Outcome.RESTART_FAILED] == 1
        assert shown["steady_incidents_total", Outcome.RESOLVED] == 1
        assert shown["steady_time_to_detect_seconds_sum", ""] == 30
        assert shown["steady_time_to_restart_seconds_count", ""] == 1
        assert shown["steady_time_to_recover_seconds_sum", ""] == 900

    @pytest.mark.parametrize(
        "outcome", sorted(set(Outcome) - {Outcome.RESOLVED, Outcome.RECOVERED})
    )
    def test_takes_no_time_to_recover_from_what_did_not(
        self, metrics: Metrics, outcome: Outcome
    ) -> None:
        metrics.show(Census(closed=[ended(outcome)]), [])
        assert samples(metrics)["steady_time_to_recover_seconds_count", ""] == 0

    def test_a_run_that_was_terminated_has_no_outcome_and_is_counted(
        self, metrics: Metrics
    ) -> None:
        metrics.show(Census(closed=[ended(None)]), [])
        assert samples(metrics)["steady_incidents_total", "unknown"] == 1

    def test_shows_what_holds_restarts_back(self, metrics: Metrics) -> None:
        lease = Lease(
            server="gpu-1", workflow_id="w", run="r", number=1, takes=timedelta(0), asked_at=BEGAN
        )
        limited = StormState(holders=[lease], waiting=[lease, lease])
        metrics.show(Census(storm=limited), [])
        shown = samples(metrics)
        assert shown["steady_restart_slots_held", ""] == 1
        assert shown["steady_restarts_blocked", "limit"] == 2
        assert shown["steady_restarts_blocked", "suspicion"] == 0
        assert shown["steady_fleet_suspicion", ""] == 0
        suspicion = Suspicion(began=BEGAN, shard=0, bad=3, managed=4, page_at=BEGAN)
        metrics.show(Census(storm=limited.model_copy(update={"suspicion": suspicion})), [])
        shown = samples(metrics)
        assert shown["steady_restarts_blocked", "limit"] == 0
        assert shown["steady_restarts_blocked", "suspicion"] == 2
        assert shown["steady_fleet_suspicion", ""] == 1

    def test_shows_a_look_in_place_of_the_one_before(self, metrics: Metrics) -> None:
        first = Census(
            verdicts={"busy": 3, "hung": 1},
            phases={Phase.PERSISTING: 1},
            budgets={"gpu-1": (2, 3), "gone": (3, 3)},
            waiting=4,
            alerts=[True, True, False],
        )
        second = Census(verdicts={"busy": 4}, phases={}, budgets={"gpu-1": (1, 3)}, waiting=0)
        metrics.show(first, [])
        metrics.show(second, [])
        shown = samples(metrics)
        assert (shown["steady_servers", "busy"], shown["steady_servers", "hung"]) == (4, 0)
        assert shown["steady_incidents_open", Phase.PERSISTING] == 0
        assert shown["steady_restart_budget_left", "gpu-1"] == 1
        assert ("steady_restart_budget_left", "gone") not in shown
        assert shown["steady_alerts_waiting", ""] == 0
        assert shown["steady_alerts_total", "delivered"] == 2
        assert shown["steady_alerts_total", "undelivered"] == 1

    def test_keeps_what_a_look_could_not_read(self, metrics: Metrics) -> None:
        metrics.show(Census(verdicts={"busy": 3}, budgets={"gpu-1": (2, 3)}, waiting=4), [])
        metrics.show(Census(problems=["everything"]), [])
        shown = samples(metrics)
        assert shown["steady_servers", "busy"] == 3
        assert shown["steady_restart_budget_left", "gpu-1"] == 2
        assert shown["steady_alerts_waiting", ""] == 4

    def test_the_age_of_a_sweep_grows_without_another_look(self, metrics: Metrics) -> None:
        at = datetime.now(UTC) - timedelta(seconds=40)
        swept = Shard(0, EVERY, BEGAN, taken=9, skipped=1, result=SweepResult(shard=0, at=at))
        never = Shard(1, EVERY, datetime.now(UTC) - timedelta(seconds=70))
        metrics.show(Census(), [swept, never])
        first = samples(metrics)
        time.sleep(0.05)
        second = samples(metrics)
        assert 40 <= first["steady_sweep_age_seconds", "0"] < 60
        assert first["steady_sweep_age_seconds", "0"] < second["steady_sweep_age_seconds", "0"]
        assert 70 <= first["steady_sweep_age_seconds", "1"] < 90
        assert first["steady_sweep_interval_seconds", "0"] == 30
        assert first["steady_sweeps_total", "0"] == 9
        assert first["steady_sweeps_skipped_total", "0"] == 1

    def test_shows_what_the_process_itself_did(self) -> None:
        vitals = Vitals()
        metrics = Metrics(vitals)
        vitals.finished("read_shard", "completed")
        vitals.finished("read_shard", "failed")
        metrics.pinged(delivered=True)
        shown = samples(metrics)
        assert shown["steady_worker_healthy", ""] == 0
        assert shown["steady_worker_activities_total", "read_shard,failed"] == 1
        assert shown["steady_dead_mans_switch_pings_total", "delivered"] == 1
        assert shown["process_resident_memory_bytes", ""] > 0

    def test_each_metric_is_documented(self, metrics: Metrics) -> None:
        swept = Shard(0, EVERY, BEGAN, result=SweepResult(shard=0, at=BEGAN))
        metrics.show(Census(budgets={"gpu-1": (1, 3)}), [swept])
        row = re.compile(r"^\| `(steady_\w+)` \|(.*?)\| (.*?) \|$", re.MULTILINE)
        documented = {name: meaning for name, _, meaning in row.findall(MONITORING.read_text())}
        page = metrics.render("")[0].decode()
        served = {
            f"{family.name}_total" if family.type == "counter" else family.name
            for family in parser.text_string_to_metric_families(page)
            if family.name.startswith("steady_")
        }
        assert set(documented) == served
        own = {name for name in served if f"# HELP {name} This worker process only: " in page}
        assert {name for name in served if documented[name].startswith("this process: ")} == own


class Slow:
    """A census that takes as long as the test says, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.delay = 0.0
        self.problems: list[str] = []

    async def take(self, _shards: Sequence[Shard]) -> Census:
        self.asked += 1
        await asyncio.sleep(self.delay)
        return Census(waiting=self.asked, problems=self.problems)


class TestAScrape:
    """It comes from a thread, as the listener's do, while the loop runs in this one."""

    @pytest.fixture
    def taker(self) -> Slow:
        return Slow()

    async def _page(self, scrape: Scrape) -> str:
        text, _ = await asyncio.to_thread(scrape.page, "")
        return text.decode()

    @pytest.mark.anyio
    async def test_looks_again_only_where_the_last_look_is_old(
        self, taker: Slow, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scrape = Scrape(taker, metrics, lambda: ())  # type: ignore[arg-type]
        for _ in range(3):
            assert "steady_alerts_waiting 1.0" in await self._page(scrape)
        await asyncio.gather(*(self._page(scrape) for _ in range(5)))
        assert taker.asked == 1
        monkeypatch.setattr(scrape_part, "CACHED", 0)
        assert "steady_alerts_waiting 2.0" in await self._page(scrape)

    @pytest.mark.anyio
    async def test_shows_what_is_known_where_temporal_is_slow(
        self, taker: Slow, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scrape_part, "PATIENCE", 0.1)
        monkeypatch.setattr(scrape_part, "CACHED", 0)
        scrape = Scrape(taker, metrics, lambda: ())  # type: ignore[arg-type]
        await self._page(scrape)
        taker.delay = 30
        assert "steady_alerts_waiting 1.0" in await self._page(scrape)

    @pytest.mark.anyio
    async def test_shows_what_is_known_while_the_loop_is_blocked(
        self, taker: Slow, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scrape = Scrape(taker, metrics, lambda: ())  # type: ignore[arg-type]
        await self._page(scrape)
        monkeypatch.setattr(scrape_part, "PATIENCE", 0.1)
        pages: list[str] = []
        thread = threading.Thread(target=lambda: pages.append(scrape.page("")[0].decode()))
        thread.start()
        thread.join(20)
        assert "steady_alerts_waiting 1.0" in pages[0]

    @pytest.mark.anyio
    async def test_says_once_what_it_lacks(
        self, taker: Slow, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scrape_part, "CACHED", 0)
        scrape = Scrape(taker, metrics, lambda: ())  # type: ignore[arg-type]
        with structlog.testing.capture_logs() as logs:
            for problems in ([], ["the fleet: RPCError"], ["the fleet: RPCError"], []):
                taker.problems = problems
                await self._page(scrape)
        assert [entry["problems"] for entry in logs] == [["the fleet: RPCError"], "none now"]


class Guards:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = False
        self.takes = 0
        self.gone: set[str] = set()

    async def host(self, machine: str) -> HostLedger | None:
        self.asked.append(machine)
        if self.fails:
            raise RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")
        return None if machine in self.gone else HostLedger(machine=machine, refused=self.takes)

    async def state(self, server: str) -> GuardState | None:
        self.asked.append(server)
        if self.fails:
            raise RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")
        if server in self.gone:
            return None
        now = datetime.now(UTC)
        takes = [Take(key=str(n), at=now, cooldown_until=now) for n in range(self.takes)]
        return founded(server).model_copy(update={"takes": takes})


def fleet(*names: str, budget: dict[str, Any] | None = None) -> Fleet:
    servers = {name: {"source": {"kind": "redis", "key": name}} for name in names}
    defaults = {"budget": budget} if budget else {}
    return Fleet.model_validate({"servers": servers, "defaults": defaults})


@pytest.mark.anyio
class TestBudgets:
    @pytest.fixture
    def guards(self) -> Guards:
        return Guards()

    @pytest.fixture
    def budgets(self, guards: Guards) -> _Budgets:
        return _Budgets(guards, asyncio.Semaphore(8))  # type: ignore[arg-type]

    async def test_are_what_the_ledger_would_still_grant(
        self, guards: Guards, budgets: _Budgets
    ) -> None:
        guards.takes = 2
        assert await budgets.look(fleet("a"), ()) == {"a": (1, 3)}

    async def test_by_the_calendar_day_too(self, guards: Guards, budgets: _Budgets) -> None:
        guards.takes = 1
        daily = fleet("a", budget={"limit": 2, "per_day_in": "Europe/Berlin"})
        assert await budgets.look(daily, ()) == {"a": (1, 2)}

    async def test_are_used_up_where_the_guard_is_gone(
        self, guards: Guards, budgets: _Budgets
    ) -> None:
        guards.gone = {"a"}
        assert await budgets.look(fleet("a"), ()) == {"a": (0, 3)}

    async def test_are_left_out_where_they_can_not_be_read(
        self, guards: Guards, budgets: _Budgets
    ) -> None:
        guards.fails = True
        assert await budgets.look(fleet("a"), ()) == {}

    async def test_are_read_again_where_steady_acts_and_else_a_minute_later(
        self, guards: Guards, budgets: _Budgets, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await budgets.look(fleet("a", "b"), ())
        guards.takes = 1
        seen = await budgets.look(fleet("a", "b"), {"b"})
        assert seen == {"a": (3, 3), "b": (2, 3)}
        assert guards.asked == ["a", "b", "b"]
        monkeypatch.setattr(census_part, "_BUDGETS_EVERY", 0.0)
        assert (await budgets.look(fleet("a", "b"), ()))["a"] == (2, 3)

    async def test_of_a_large_fleet_are_read_in_turn(
        self, guards: Guards, budgets: _Budgets, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(census_part, "_BUDGETS_A_LOOK", 2)
        large = fleet("a", "b", "c", "d", "e")
        counts = [len(await budgets.look(large, ())) for _ in range(4)]
        assert counts == [2, 4, 5, 5]

    async def test_of_a_server_that_was_removed_are_forgotten(self, budgets: _Budgets) -> None:
        await budgets.look(fleet("a", "b"), ())
        assert await budgets.look(fleet("a"), ()) == {"a": (3, 3)}


MACHINES = {"rack:22": {"a", "b"}, "other:22": {"c"}}


class TestRefusalsByMachines:
    @pytest.mark.anyio
    async def test_are_counted_by_their_ledgers_and_read_again_where_steady_acts(self) -> None:
        guards = Guards()
        machines = _Machines(guards, asyncio.Semaphore(8))  # type: ignore[arg-type]
        first = await machines.look(MACHINES, ())
        guards.takes = 3
        second = await machines.look(MACHINES, {"b"})
        assert (first, second) == ({"rack:22": 0, "other:22": 0}, {"rack:22": 3, "other:22": 0})
        assert await machines.look({"rack:22": {"a"}}, ()) == {"rack:22": 3}
        assert len(guards.asked) == 3

    @pytest.mark.anyio
    async def test_stay_as_they_were_where_a_ledger_can_not_be_read(self) -> None:
        guards = Guards()
        guards.takes = 3
        machines = _Machines(guards, asyncio.Semaphore(8))  # type: ignore[arg-type]
        await machines.look(MACHINES, ())
        guards.fails = True
        assert (await machines.look(MACHINES, {"a"}))["rack:22"] == 3
        never = _Machines(guards, asyncio.Semaphore(8))  # type: ignore[arg-type]
        assert await never.look(MACHINES, ()) == {}

    def test_are_asked_of_the_machines_that_have_a_ledger(self) -> None:
        hosts = {
            name: {"address": f"{name}.internal", "user": "ops", "key": "/key"}
            for name in ("one", "two")
        }
        servers = {
            name: {
                "source": {"kind": "redis", "key": name},
                "restart": {"kind": "docker", "host": host, "name": name},
            }
            for name, host in {"a": "one", "b": "one", "c": "two"}.items()
        }
        known = Fleet.model_validate({"hosts": hosts, "servers": servers})
        assert _machines(known, ["one.internal:22"]) == {"one.internal:22": {"a", "b"}}


class TestServersByVerdict:
    def count(
        self, swept: Verdict, opened: OpenRun | None, guard: GuardState | None = None
    ) -> dict[str, int]:
        """Of a fleet of two, of which one was swept."""
        memory = Memory(at=BEGAN, verdict=swept, since=BEGAN)
        result = SweepResult(shard=0, at=BEGAN, servers={"a": memory, "gone": memory})
        shards = [Shard(0, EVERY, BEGAN, result=result)]
        runs = {"a": opened} if opened is not None else {}
        guards = {"a": (guard, 3)} if guard is not None else {}
        return verdicts(FleetState(fleet=fleet("a", "b")), shards, runs, guards)

    def test_are_what_the_sweeps_saw(self) -> None:
        assert self.count(Verdict.BUSY, None) == {"busy": 1, "unknown": 1}
        assert self.count(Verdict.HUNG, OpenRun(Phase.WAITING)) == {"hung": 1, "unknown": 1}

    @pytest.mark.parametrize(
        ("swept", "proved"),
        [(Verdict.IDLE, Verdict.UNRESPONSIVE), (Verdict.SUSPECT, Verdict.STUCK)],
    )
    def test_are_what_an_open_incident_proved_until_its_restart(
        self, swept: Verdict, proved: Verdict
    ) -> None:
        assert self.count(swept, OpenRun(Phase.PERSISTING, proved)) == {proved: 1, "unknown": 1}
        assert self.count(swept, OpenRun(Phase.COOLING, proved)) == {swept: 1, "unknown": 1}

    def test_are_what_an_incident_proved_that_waits_for_a_person_after_its_run(self) -> None:
        def held(proved: Verdict) -> GuardState:
            incident = Incident(id="a@x", server="a", first_observed=BEGAN, verdict=proved)
            return GuardState(server="a", incident=incident)

        unresponsive = held(Verdict.UNRESPONSIVE)
        assert self.count(Verdict.IDLE, None, unresponsive) == {"unresponsive": 1, "unknown": 1}
        assert self.count(Verdict.BUSY, None, unresponsive) == {"busy": 1, "unknown": 1}
        assert self.count(Verdict.IDLE, None, held(Verdict.HUNG)) == {"idle": 1, "unknown": 1}
        cooling = OpenRun(Phase.COOLING, Verdict.UNRESPONSIVE)
        assert self.count(Verdict.IDLE, cooling, unresponsive) == {"idle": 1, "unknown": 1}


class TestWhatIsBlocked:
    def count(self, **facts: Any) -> dict[str, int]:
        """The reasons that apply to a server that hangs, of a fleet of two."""
        memory = Memory(at=BEGAN, verdict=facts.get("verdict", Verdict.HUNG), since=BEGAN)
        result = SweepResult(shard=0, at=BEGAN, servers={"a": memory, "gone": memory})
        shards = [Shard(0, EVERY, BEGAN, result=result)]
        pauses = {"a": facts["pause"]} if "pause" in facts else {}
        state = FleetState(fleet=fleet("a"), pauses=pauses)
        opened = {"a": OpenRun(facts["phase"], facts.get("proved"))} if "phase" in facts else {}
        guards = {"a": (facts.get("guard", GuardState(server="a")), facts.get("left", 3))}
        found = blocked(state, shards, opened, guards, BEGAN)
        assert set(found) == set(REASONS)
        return {reason: count for reason, count in found.items() if count}

    @pytest.mark.parametrize(
        ("facts", "reasons"),
        [
            ({}, {}),
            ({"left": 0}, {"budget": 1}),
            ({"left": 0, "verdict": Verdict.MISSING}, {}),
            ({"left": 0, "phase": Phase.ESCALATED}, {"budget": 1}),
            ({"left": 0, "phase": Phase.VERIFYING}, {}),
            ({"phase": Phase.APPROVING}, {"approval": 1}),
            ({"phase": Phase.WAITING}, {"slots": 1}),
            ({"verdict": Verdict.IDLE, "phase": Phase.WAITING}, {}),
            (
                {"verdict": Verdict.IDLE, "phase": Phase.WAITING, "proved": Verdict.UNRESPONSIVE},
                {"slots": 1},
            ),
            ({"pause": Pause(until=BEGAN + EVERY), "left": 0}, {"pause": 1}),
            ({"pause": Pause(until=BEGAN - EVERY)}, {}),
        ],
        ids=str,
    )
    def test_by_the_first_reason_that_applies(
        self, facts: dict[str, Any], reasons: dict[str, int]
    ) -> None:
        assert self.count(**facts) == reasons

    def test_by_what_the_guard_holds(self) -> None:
        incident = Incident(id="a@x", server="a", first_observed=BEGAN)
        held = incident.model_copy(update={"hold": Hold.CANCELLED})
        later = incident.model_copy(update={"next_try_at": BEGAN + EVERY})
        frozen = held.model_copy(update={"verdict": Verdict.UNRESPONSIVE})
        guard = GuardState(server="a", incident=frozen)
        assert self.count(guard=guard, verdict=Verdict.IDLE) == {"hold": 1}
        for changes, reason in (
            ({"incident": held}, "hold"),
            ({"incident": later}, "retry"),
            ({"cooldown_until": BEGAN + EVERY}, "cooldown"),
        ):
            guard = GuardState(server="a").model_copy(update=changes)
            assert self.count(guard=guard) == {reason: 1}

    def test_is_on_the_page(self, metrics: Metrics) -> None:
        assert {samples(metrics)["steady_servers_held_back", reason] for reason in REASONS} == {0}
        metrics.show(
            Census(
                budgets={"gpu-1": (0, 3)},
                refused={"gpu-1": 2},
                refused_on={"rack:22": 5},
                blocked={"budget": 1},
                unattended=4,
            ),
            [],
        )
        shown = samples(metrics)
        assert shown["steady_restarts_refused_total", "gpu-1"] == 2
        assert shown["steady_machine_restarts_refused_total", "rack:22"] == 5
        assert (
            shown["steady_servers_held_back", "budget"],
            shown["steady_servers_held_back", "hold"],
        ) == (1, 0)
        assert shown["steady_servers_unattended", ""] == 4


def test_a_ledger_counts_what_it_refuses_over_all_its_runs() -> None:
    request = TakeRequest(
        server="a", incident="i", key="1", budget=RollingBudget(limit=1), cooldown=EVERY
    )
    state = founded("a")
    for key in ("1", "2", "3"):
        state, _ = take(state, request.model_copy(update={"key": key}), BEGAN)
    assert GuardState.model_validate_json(state.model_dump_json()).refused == 2
