"""Whose start it was: each restart explains one new process in each sight, and no more."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet import foreign, guard, ledger
from fleet.contracts.alerts import Severity
from fleet.contracts.guard import (
    CloseRequest,
    GiveBackRequest,
    GuardState,
    OpenRequest,
    Sight,
    StartRequest,
    StartResult,
    TakeRequest,
)
from fleet.contracts.host import HostState, HostStatus
from fleet.contracts.sweep import SweepReadings, SweepResult
from fleet.engines.sighting import Sighting
from fleet.judge import Memory
from fleet.policy import Policy, RollingBudget
from fleet.readings import Reading

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
RECORD, HOST = Sight.RECORD, Sight.HOST


class Guarded:
    def __init__(self) -> None:
        self.state, self.now = guard.founded("gpu-1"), NOON

    def later(self, span: timedelta) -> "Guarded":
        self.now += span
        return self

    def take(self, key: str, **facts: Any) -> bool:
        request = TakeRequest(
            server="gpu-1",
            incident=facts.pop("incident", ""),
            key=key,
            budget=RollingBudget(limit=100),
            cooldown=10 * MINUTE,
            **facts,
        )
        self.state, result = guard.take(self.state, request, self.now)
        return result.granted

    def start(self, process: str, sight: Sight = RECORD, **facts: Any) -> StartResult:
        request = StartRequest(
            server="gpu-1", sight=sight, process=process, cooldown=10 * MINUTE, **facts
        )
        self.state, result = foreign.started(self.state, request, self.now)
        return result

    @property
    def foreign(self) -> list[str]:
        return [taken.key for taken in self.state.takes if taken.by == foreign.FOREIGN]


def test_a_start_that_nobody_took_counts_starts_the_cooldown_and_is_told() -> None:
    g = Guarded()
    result = g.start("p1", why="a sweep found another process than before")
    assert result.take is not None
    assert (result.tell, result.count) == (True, 1)
    assert (g.foreign, g.state.cooldown_until) == (["foreign/record/p1"], NOON + 10 * MINUTE)
    assert ledger.budget_left(g.state, RollingBudget(limit=3), NOON) == 2


def test_the_new_process_of_a_restart_is_never_foreign_in_either_sight() -> None:
    g = Guarded()
    g.take("ours")
    assert g.later(MINUTE).start("p1").take is None
    assert g.later(MINUTE).start("h1", HOST).take is None
    assert g.foreign == []


@pytest.mark.parametrize("wait", [timedelta(0), MINUTE, 40 * MINUTE, 23 * HOUR])
def test_however_late_it_is_first_seen(wait: timedelta) -> None:
    g = Guarded()
    g.take("ours")
    assert g.later(wait).start("p1").take is None


def test_but_the_second_process_after_it_is() -> None:
    g = Guarded()
    g.take("ours")
    g.later(MINUTE).start("p1")
    assert g.later(MINUTE).start("p2").take is not None


def test_two_restarts_explain_two_processes_in_their_order() -> None:
    g = Guarded()
    g.take("one")
    g.later(15 * MINUTE).take("two")
    assert [g.later(MINUTE).start(p).take is None for p in ("p1", "p2", "p3")] == [
        True,
        True,
        False,
    ]


def test_the_same_process_reported_again_is_booked_once_and_answered_the_same() -> None:
    g = Guarded()
    first = g.start("p1")
    again = g.later(MINUTE).start("p1")
    assert (again.take, again.tell) == (first.take, True)
    assert len(g.foreign) == 1


def test_what_both_sights_see_is_one_start() -> None:
    g = Guarded()
    assert g.start("h1", HOST).take is not None
    assert g.later(5 * MINUTE).start("p1").take is not None
    assert g.foreign == ["foreign/host/h1"]


def test_a_crash_loop_is_told_once_a_day_and_counted() -> None:
    g = Guarded()
    told = [g.later(10 * MINUTE).start(f"p{n}").tell for n in range(200)]
    assert [n for n, each in enumerate(told) if each] == [0, 144]
    assert g.start("one more").count == 145
    assert len(g.state.takes) <= ledger.MOST_TAKES


def test_one_that_is_kept_quiet_counts_and_the_next_is_told() -> None:
    g = Guarded()
    quiet = g.start("p1", quiet=True)
    assert (quiet.take is not None, quiet.tell) == (True, False)
    assert g.later(MINUTE).start("p2").tell


def test_a_restart_that_was_given_back_explains_nothing() -> None:
    """Somebody else was quicker: the command was not sent, and the new process is theirs."""
    g = Guarded()
    g.take("ours")
    assert g.start("p1").take is None
    proof = GiveBackRequest(server="gpu-1", key="ours", proof="it was started anew meanwhile")
    g.state, _ = guard.give_back(g.state, proof, g.now)
    assert g.foreign == ["foreign/instead of/ours"]
    assert not g.take("ours")
    assert g.start("p1").take is not None
    assert len(g.foreign) == 1


def test_a_restart_that_is_proved_to_have_had_no_effect_explains_nothing() -> None:
    g = Guarded()
    g.state, opened = guard.open_incident(g.state, OpenRequest(server="gpu-1", by_hand=True), g.now)
    g.take("ours", incident=opened.incident.id)
    close = CloseRequest(server="gpu-1", incident=opened.incident.id, no_effect=True)
    g.state, _ = guard.close(g.state, close, g.now)
    assert g.start("p1").take is not None


def test_an_incident_leaves_which_process_it_started() -> None:
    g = Guarded()
    g.state, opened = guard.open_incident(g.state, OpenRequest(server="gpu-1", by_hand=True), g.now)
    g.take("ours", incident=opened.incident.id)
    close = CloseRequest(
        server="gpu-1", incident=opened.incident.id, process="h1", is_ours=True, failed_try=True
    )
    g.state, _ = guard.close(g.state, close, g.now)
    assert g.state.incident is not None
    assert g.state.incident.process == "h1"
    assert g.later(HOUR).start("h2", HOST).take is not None


def test_a_remediation_that_knows_its_own_process_knows_the_next_for_foreign() -> None:
    g = Guarded()
    g.take("ours")
    assert g.later(MINUTE).start("h2", HOST, ours="h1").take is not None
    assert g.start("p1").take is None, "the sweep has yet to see what steady started"


def test_a_script_that_took_its_budget_is_no_stranger() -> None:
    g = Guarded()
    g.take("deploy/1", by="deploy")
    assert g.start("p1").take is None


def test_a_script_that_took_before_steady_did_is_no_stranger_when_steady_knows_its_own() -> None:
    """Only the earlier restarts of the same incident have had their process then."""
    g = Guarded()
    g.take("deploy/1", by="deploy")
    g.later(HOUR).take("ours", incident="i")
    assert g.later(MINUTE).start("h2", HOST, ours="h1").take is None
    assert g.start("h3", HOST, ours="h1").take is not None


def test_the_alert_says_who_it_is_and_what_to_do_and_can_wait_until_morning() -> None:
    g = Guarded()
    message = foreign.alert("gpu-1", g.start("p1", why="a sweep found another process"))
    assert message is not None
    assert (message.cause, message.severity) == ("foreign_restart", Severity.NOTICE)
    assert message.title == "gpu-1: another restarter is at work"
    assert "steady budget take gpu-1" in message.next_step
    assert foreign.alert("gpu-1", StartResult()) is None


def test_the_state_of_before_is_understood() -> None:
    old = '{"server":"gpu-1","takes":[{"key":"k","at":"2026-03-02T11:59:00Z",'
    old += '"cooldown_until":"2026-03-02T12:09:00Z"}]}'
    g = Guarded()
    g.state = GuardState.model_validate_json(old)
    assert g.start("p1").take is None


# --- what a sweep finds --------------------------------------------------------------------------


def memory(process: str | None, **facts: Any) -> Memory:
    return Memory(at=NOON, since=NOON, process=process, **facts)


def readings(policy: Policy | None = None, **facts: Any) -> SweepReadings:
    return SweepReadings.model_validate(
        {
            "interval": "30s",
            "version": 1,
            "readings": [Reading(server="gpu-1", at=NOON)],
            "policies": [policy or Policy()],
            "policy_of": {"gpu-1": 0},
            "guarded": {"gpu-1": "rack:22"},
            **facts,
        }
    )


def found(before: Memory | None, after: Memory, seen: SweepReadings | None = None) -> Any:
    last = SweepResult(shard=0, at=NOON, servers={"gpu-1": before}) if before else None
    return list(foreign.starts(seen or readings(), last, {"gpu-1": after}))


def test_a_sweep_finds_another_process_and_names_its_machine() -> None:
    (start,) = found(memory("a"), memory("b"))
    assert (start.process, start.machine, start.sight) == ("b", "rack:22", RECORD)
    assert start.quiet is False


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, memory("a")), (memory(None), memory("a")), (memory("a"), memory("a"))],
)
def test_what_is_seen_for_the_first_time_or_unchanged_is_no_start(
    before: Memory | None, after: Memory
) -> None:
    assert found(before, after) == []


def test_an_engine_is_known_by_its_page() -> None:
    old, new = (
        memory(None, engine=Sighting(started=each, steps=1, busy=0, marks=()).encode())
        for each in ("aaaa", "bbbb")
    )
    (start,) = found(old, new)
    assert start.process == "bbbb"
    assert found(old, old) == []


def test_readings_of_before_and_servers_without_a_restart_have_no_starts() -> None:
    assert found(memory("a"), memory("b"), readings(guarded={})) == []


def test_nobody_is_told_while_paused_or_of_a_machine_that_may_be_off() -> None:
    pause = {"gpu-1": {"until": NOON + HOUR}}
    (paused,) = found(memory("a"), memory("b"), readings(paused=pause))
    (off,) = found(memory("a"), memory("b"), readings(Policy(expected_off=True)))
    assert (paused.quiet, off.quiet) == (True, True)


def test_a_start_that_reached_no_guard_is_found_again_by_the_next_sweep() -> None:
    before = SweepResult(shard=0, at=NOON, servers={"gpu-1": memory("a")})
    after = SweepResult(shard=0, at=NOON, servers={"gpu-1": memory("b")})
    kept = foreign.with_unreported(after, before, ["gpu-1"])
    assert found(kept.servers["gpu-1"], memory("b")) != []


def test_a_host_names_a_process_by_its_own_words() -> None:
    one = HostState(status=HostStatus.RUNNING, identity="c1", started="s1")
    two = one.model_copy(update={"started": "s2"})
    assert foreign.process_of(one) != foreign.process_of(two)
    assert foreign.process_of(one.model_copy(update={"identity": ""})) == ""
