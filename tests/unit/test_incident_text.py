"""The page of one incident, as a person reads it in a terminal."""

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleet.contracts.alerts import Severity
from fleet.contracts.host import Effect, GpuFault
from fleet.contracts.remediation import Moment, Outcome, Phase
from fleet.gpu_faults import Remedy
from fleet.verdicts import Verdict
from worker.deeds import Booked, Commanded, Saved
from worker.incident import Story, moment_of, named
from worker.incident_text import lines
from worker.told import AlertTold

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ID = "gpu-1@20261130T120000.000Z"


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def alert(cause: str, seconds: float, *, delivered: bool | None, detail: str = "") -> AlertTold:
    return AlertTold(
        cause=cause,
        workflow_id=f"alert/{ID}/{cause}",
        at=after(seconds),
        severity=Severity.NOTICE,
        title=f"gpu-1: {cause}",
        delivered=delivered,
        detail=detail,
    )


STORY = Story(
    incident=ID,
    server="gpu-1",
    workflow_id="remediate/gpu-1",
    phase=Phase.CLOSED,
    verdict=Verdict.HUNG,
    outcome=Outcome.RESOLVED,
    meaning="restarted, and healthy since",
    job="render-7",
    since=T0,
    detected_at=after(30),
    restarted_at=after(185),
    recovered_at=after(786),
    closed_at=after(786),
    restarts=1,
    timeline=[
        Moment(at=after(30), text="incident opened"),
        Moment(at=after(786), text="resolved: a new process, busy"),
    ],
    commands=[Commanded(at=after(185), effect=Effect.DONE)],
    budget=[Booked(at=after(181), word="taken", left=2)],
    evidence=[Saved(at=after(180), path="/e", size=12345, missing=["nvidia-smi.txt: no"])],
    alerts=[
        alert("confirmed", 30, delivered=True),
        alert("resolved", 786, delivered=None, detail="try 3, connection refused"),
        alert("restarting", 184, delivered=False, detail="no answer in time"),
    ],
)


def page(story: Story, link: str | None = None) -> str:
    return "\n".join(lines(story, link))


def test_a_closed_one_reads_from_what_it_was_to_how_it_came() -> None:
    assert page(STORY, "http://ui/x") == (
        "gpu-1@20261130T120000.000Z\n"
        "  server     gpu-1, job render-7\n"
        "  verdict    hung\n"
        "  began      2026-11-30 12:00:00 UTC\n"
        "  outcome    resolved: restarted, and healthy since\n"
        "  times      detected after 30s, restarted after 3m5s, recovered after 13m6s\n"
        "  restarts   1 (commands: +3m5s done)\n"
        "  budget     +3m1s taken, 2 left\n"
        "  evidence   /e (12,345 bytes); missing: nvidia-smi.txt: no\n"
        "  Temporal   http://ui/x\n"
        "\n"
        "alerts\n"
        "      +30s  notice confirmed: delivered · gpu-1: confirmed\n"
        "    +13m6s  notice resolved: on its way (try 3, connection refused) · gpu-1: resolved\n"
        "     +3m4s  notice restarting: NOT delivered (no answer in time) · gpu-1: restarting\n"
        "\n"
        "timeline\n"
        "      +30s  12:00:30  incident opened\n"
        "    +13m6s  12:13:06  resolved: a new process, busy"
    )


def test_an_open_one_says_what_comes_next_and_when() -> None:
    story = STORY.model_copy(
        update={
            "phase": Phase.COOLING,
            "outcome": None,
            "recovered_at": None,
            "closed_at": None,
            "next_step": "whatever it shows starts nothing",
            "next_at": after(785),
        }
    )
    shown = page(story)
    assert (
        "  state      cooling down; next: whatever it shows starts nothing, at 12:13:05 UTC\n"
    ) in shown
    assert "recovered after" not in shown


def test_one_that_waits_for_a_person_shows_its_outcome_and_its_phase() -> None:
    story = STORY.model_copy(update={"phase": Phase.ESCALATED, "outcome": Outcome.BUDGET_EXHAUSTED})
    assert "  state      budget_exhausted, escalated\n" in page(story)
    story = story.model_copy(update={"outcome": Outcome.ESCALATED})
    assert "  state      escalated\n" in page(story)


def test_where_no_worker_answers_it_says_so_at_the_end() -> None:
    shown = page(STORY.model_copy(update={"complete": False}))
    assert shown.splitlines()[-1].endswith("are missing: start `steady worker`")


def test_what_others_said_can_not_reach_the_terminal_s_controls() -> None:
    evil = STORY.model_copy(update={"job": "a\x1b[2J\nb", "meaning": "x\rspoofed"})
    shown = page(evil)
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "job a [2J b" in shown


def test_before_an_incident_was_opened_there_is_little_to_say() -> None:
    story = Story(incident=None, server="gpu-1", workflow_id="remediate/gpu-1", meaning="gone")
    assert page(story) == (
        "gpu-1, before an incident was opened\n"
        "  server     gpu-1\n"
        "  state      gone\n"
        "  restarts   0"
    )


@pytest.mark.parametrize(
    ("name", "server", "incident"),
    [
        (ID, "gpu-1", ID),
        ("gpu-1", "gpu-1", None),
        ("remediate/gpu-1", "gpu-1", None),
        ("guard/gpu-1", "gpu-1", None),
        (f"alert/{ID}/not_recovered", "gpu-1", ID),
    ],
)
def test_one_is_named_in_several_ways(name: str, server: str, incident: str | None) -> None:
    assert named(name) == (server, incident)


def test_an_id_says_when_it_began() -> None:
    assert moment_of("gpu-1@20261130T091227.123Z") == datetime(
        2026, 11, 30, 9, 12, 27, 123000, tzinfo=UTC
    )
    assert moment_of("gpu-1@yesterday") is None


def test_evidence_that_expired_or_is_elsewhere_says_so(tmp_path: Path) -> None:
    shelf = tmp_path / "evidence"
    here = shelf / "gpu-1@x" / "20261130T120300.000000Z"
    here.mkdir(parents=True)
    there, gone = str(here), str(here.with_name("20261130T110000.000000Z"))
    own = socket.gethostname()
    shown = [
        (Saved(at=after(0), path=there, size=9, missing=[], kept_on=own), f"{there} (9 bytes)"),
        (Saved(at=after(0), path=gone, size=9, missing=[], kept_on=own), f"{gone} (expired)"),
        (Saved(at=after(0), path=gone, size=9, missing=[]), f"{gone} (expired)"),
        (
            Saved(at=after(0), path=gone, size=9, missing=[], kept_on="rack-9"),
            f"{gone} (9 bytes, on rack-9)",
        ),
        (Saved(at=after(0), path=None, size=0, missing=[], kept_on=own), "none"),
    ]
    for saved, words in shown:
        lines = page(STORY.model_copy(update={"evidence": [saved]})).splitlines()
        assert f"  evidence   {words}" in lines


def test_a_fault_that_no_restart_cures_stands_with_the_evidence() -> None:
    fault = GpuFault(what="Xid 79: GPU has fallen off the bus", remedy=Remedy.REBOOT)
    saved = Saved(at=after(0), path="/e", size=1, missing=[], faults=[fault])
    shown = page(STORY.model_copy(update={"evidence": [saved]}))
    assert "; Xid 79: GPU has fallen off the bus; what helps: reboot the host" in shown
