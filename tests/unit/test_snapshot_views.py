"""A server's row: what the last sweep saw, or what its open incident has proved."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.contracts.fleet import FleetState
from fleet.contracts.remediation import Phase, RemediationStatus
from fleet.contracts.sweep import SweepResult
from fleet.judge import Memory
from fleet.verdicts import Verdict
from worker.live import header
from worker.snapshot import ServerView, Snapshot, views

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LONG_AGO, BEGAN = NOW - timedelta(hours=9), NOW - timedelta(minutes=3)


def row(swept: Verdict | None, *incidents: RemediationStatus) -> ServerView:
    memory = Memory(at=NOW, since=LONG_AGO, verdict=swept)
    sweep = SweepResult(
        shard=0, at=NOW, version=1, servers={"v-1": memory}, whys={"v-1": "no work in flight"}
    )
    [view] = views(FleetState(), [sweep], list(incidents))
    return view


@pytest.mark.parametrize(
    ("swept", "probed", "shown"),
    [
        (Verdict.IDLE, Verdict.UNPROVEN, Verdict.UNPROVEN),
        (Verdict.IDLE, Verdict.DEGRADED, Verdict.DEGRADED),
        (Verdict.IDLE, Verdict.HEALTHY, Verdict.IDLE),
        (Verdict.BUSY, Verdict.UNPROVEN, Verdict.BUSY),
        (Verdict.MISSING, Verdict.UNPROVEN, Verdict.MISSING),
    ],
)
def test_what_a_probe_found_is_shown_where_a_sweep_can_not_tell(
    swept: Verdict, probed: Verdict, shown: Verdict
) -> None:
    def result(verdict: Verdict, why: str) -> SweepResult:
        memory = Memory(at=NOW, since=BEGAN, verdict=verdict)
        return SweepResult(shard=0, at=NOW, version=1, servers={"v-1": memory}, whys={"v-1": why})

    sweeps, probes = [result(swept, "by a sweep")], [result(probed, "by a probe")]
    [view] = views(FleetState(), sweeps, [], probes)
    why = "by a probe" if shown is probed else "by a sweep"
    assert (view.verdict, view.why) == (shown, why)


def incident(verdict: Verdict, phase: Phase) -> RemediationStatus:
    return RemediationStatus(
        server="v-1", incident="v-1@x", phase=phase, verdict=verdict, since=BEGAN
    )


@pytest.mark.parametrize(
    "phase", [Phase.PERSISTING, Phase.APPROVING, Phase.WAITING, Phase.RECHECKING, Phase.ESCALATED]
)
@pytest.mark.parametrize(
    ("proved", "swept"),
    [(Verdict.UNRESPONSIVE, Verdict.IDLE), (Verdict.STUCK, Verdict.SUSPECT)],
)
def test_what_an_incident_has_proved_is_shown_where_a_sweep_can_not_tell(
    phase: Phase, proved: Verdict, swept: Verdict
) -> None:
    view = row(swept, incident(proved, phase))
    assert (view.verdict, view.since, view.phase) == (proved, BEGAN, phase)
    assert f"to a sweep it is {swept}: no work in flight" in view.why


def test_such_a_server_does_not_count_as_well() -> None:
    view = row(Verdict.IDLE, incident(Verdict.UNRESPONSIVE, Phase.PERSISTING))
    text = header(Snapshot(at=NOW, servers=[view]), "fleet.toml", None).plain
    assert "0 of 1 well" in text


@pytest.mark.parametrize("phase", [Phase.SETTLING, Phase.COOLING, Phase.VERIFYING, Phase.CLOSED])
def test_after_the_restart_the_sweep_is_believed_again(phase: Phase) -> None:
    view = row(Verdict.IDLE, incident(Verdict.UNRESPONSIVE, phase))
    assert (view.verdict, view.since, view.phase) == (Verdict.IDLE, LONG_AGO, phase)


@pytest.mark.parametrize("swept", [Verdict.BUSY, Verdict.LOADING, Verdict.MISSING, None])
def test_what_a_sweep_can_tell_for_itself_is_shown(swept: Verdict | None) -> None:
    assert row(swept, incident(Verdict.UNRESPONSIVE, Phase.PERSISTING)).verdict is swept


def test_a_verdict_that_sweeps_give_is_never_kept_alive_by_an_incident() -> None:
    assert row(Verdict.IDLE, incident(Verdict.HUNG, Phase.PERSISTING)).verdict is Verdict.IDLE


def test_without_an_incident_it_is_what_the_sweep_saw() -> None:
    view = row(Verdict.IDLE)
    assert (view.verdict, view.why, view.phase) == (Verdict.IDLE, "no work in flight", None)
