"""What a person sees of a snapshot, in the live view and line by line."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from fleet.contracts.fleet import Pause
from fleet.contracts.remediation import Outcome, Phase, RemediationStatus
from fleet.verdicts import Verdict
from worker.live import changes, screen
from worker.room import fitted
from worker.snapshot import Incidents, ServerView, Snapshot, once

_NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
_UI = "http://127.0.0.1:8233"


def _ago(seconds: float) -> datetime:
    return _NOW - timedelta(seconds=seconds)


def _view(name: str, verdict: Verdict | None = Verdict.BUSY, **more: object) -> ServerView:
    facts = {"server": name, "verdict": verdict, "since": _ago(75), "seen_at": _ago(3), **more}
    return ServerView.model_validate(facts)


def _incident(**facts: object) -> RemediationStatus:
    base: dict[str, object] = {
        "server": "gpu-1",
        "incident": "gpu-1@x",
        "phase": Phase.PERSISTING,
        "verdict": Verdict.HUNG,
        "since": _ago(90),
        "next_step": "read again, and act if it is still true",
        "next_at": _NOW + timedelta(seconds=90),
    }
    return RemediationStatus.model_validate({**base, **facts})


def _closed(**facts: object) -> RemediationStatus:
    base: dict[str, object] = {
        "phase": Phase.CLOSED,
        "outcome": Outcome.RESOLVED,
        "restarts": 1,
        "next_step": "restarted, and healthy since",
        "next_at": None,
    }
    return _incident(**{**base, **facts})


def _seen(*servers: ServerView, **more: object) -> Snapshot:
    facts = {"at": _NOW, "fleet": "hall", "version": 3, "servers": list(servers), **more}
    return Snapshot.model_validate(facts)


def _shown(seen: Snapshot, *alerts: str, width: int = 140, height: int = 100) -> str:
    console = Console(record=True, width=width, file=StringIO())
    room = fitted(seen, len(alerts), width, height)
    console.print(screen(seen, "fleet.toml", _UI, alerts, room))
    text = console.export_text()
    assert text.startswith("steady · fleet.toml")
    return text


def _line(text: str, having: str) -> str:
    return next(line for line in text.splitlines() if having in line)


def test_an_incident_of_several_tries_stands_once_with_their_number() -> None:
    last, before = _closed(outcome=Outcome.RESTART_FAILED), _closed(outcome=Outcome.RESTART_FAILED)
    other = _closed(server="gpu-2", incident="gpu-2@x")
    found = once([], [last, other, before])
    assert found.closed == [last, other]
    assert found.tries == {"gpu-1@x": 2}
    text = _shown(_seen(_view("gpu-1"), closed=found.closed, tries=found.tries))
    assert "restart_failed (2 tries)" in _line(text, "restart_failed")
    assert "tries" not in _line(text, "resolved")


def test_a_try_that_is_open_stands_for_those_before_it() -> None:
    now, before = _incident(), _closed(outcome=Outcome.RESTART_FAILED)
    assert once([now], [before]) == Incidents(open=[now], tries={"gpu-1@x": 2})


def test_runs_that_opened_no_incident_are_not_one() -> None:
    runs = [_closed(incident=None, outcome=Outcome.NOT_CONFIRMED) for _ in range(2)]
    assert once([], runs) == Incidents(closed=runs)


def test_a_restart_by_hand_shows_what_is_known_of_the_server() -> None:
    text = _shown(_seen(_view("gpu-1"), open=[_incident(verdict=None)]))
    assert "busy" in _line(text, "1m30s ago")
    assert "not seen yet" not in text


def test_the_head_says_which_fleet_how_well_it_is_and_where_the_ui_is() -> None:
    text = _shown(_seen(_view("gpu-1"), _view("gpu-2", Verdict.HUNG), open=[_incident()]))
    assert "fleet.toml, version 3 · 1 of 2 well, 1 open incident\n" in text
    assert _UI in text


def test_a_server_shows_its_verdict_for_how_long_and_why() -> None:
    why = "state processing, heartbeat 2m10s old"
    line = _line(_shown(_seen(_view("gpu-1", Verdict.HUNG, why=why))), "gpu-1")
    assert "hung" in line
    assert "1m15s" in line
    assert why in line


def test_a_server_shows_where_its_remediation_stands() -> None:
    seen = _seen(_view("gpu-1", Verdict.HUNG, phase=Phase.COOLING))
    assert "cooling down" in _line(_shown(seen), "gpu-1")


def test_the_worst_come_first() -> None:
    text = _shown(
        _seen(_view("a-well"), _view("b-silent", Verdict.SILENT), _view("c-hung", Verdict.HUNG))
    )
    assert text.index("c-hung") < text.index("b-silent") < text.index("a-well")


def test_a_verdict_that_waits_for_its_confirmation_has_a_question_mark() -> None:
    text = _shown(_seen(_view("gpu-1", Verdict.BUSY, pending=Verdict.HUNG)))
    assert "busy (hung?)" in text


def test_a_server_that_no_sweep_has_reached_yet_says_so() -> None:
    text = _shown(_seen(ServerView(server="gpu-1")))
    assert "not seen yet" in _line(text, "gpu-1")


def test_a_verdict_that_is_old_says_that_instead_of_standing_as_news() -> None:
    seen = _seen(_view("gpu-1", seen_at=_ago(600)), sweep_every="30s")
    assert "last read 10m ago: is a worker running?" in _line(_shown(seen), "gpu-1")


def test_a_slow_sweep_is_no_old_verdict() -> None:
    seen = _seen(_view("gpu-1", seen_at=_ago(600)), sweep_every="10m")
    assert "last read" not in _shown(seen)


def test_a_pause_shows_until_when_by_whom_and_why() -> None:
    pause = Pause(until=_NOW + timedelta(minutes=5), who="ana", why="driver update")
    said = "paused until 12:05:00 UTC by ana: driver update"
    assert said in _line(_shown(_seen(_view("gpu-1", paused=pause))), "gpu-1")
    assert f"the whole fleet is {said}" in _shown(_seen(_view("gpu-1"), fleet_pause=pause))


def test_what_blocks_every_restart_stands_at_the_top() -> None:
    said = "fleet-wide suspicion (3 of 4 servers of shard 0 turned bad within 10m)"
    assert f"no restart is possible: {said}" in _shown(_seen(_view("gpu-1"), blocked_by=said))
    assert "no restart is possible" not in _shown(_seen(_view("gpu-1")))


def test_a_pause_that_is_over_does_not_show() -> None:
    pause = Pause(until=_ago(1), who="ana")
    assert "paused" not in _shown(_seen(_view("gpu-1", paused=pause)))


def test_an_open_incident_shows_what_comes_next_and_when() -> None:
    line = _line(_shown(_seen(open=[_incident()])), "gpu-1")
    assert "persisting" in line
    assert "in 1m30s: read again, and act if it is still true" in line


def test_a_step_that_is_due_is_not_counted_down() -> None:
    line = _line(_shown(_seen(open=[_incident(next_at=_NOW + timedelta(milliseconds=400))])), "gpu")
    assert "persisting   read again, and act if it is still true" in line


def test_a_closed_incident_shows_its_outcome_in_words_and_its_restarts() -> None:
    line = _line(_shown(_seen(closed=[_closed()])), "gpu-1")
    assert "resolved" in line
    assert "restarted, and healthy since" in line
    assert " 1 " in line


def test_what_was_given_up_and_recovered_later_waits_for_nobody_any_more() -> None:
    said = "the restart budget was used up; it recovered later"
    closed = _closed(outcome=Outcome.BUDGET_EXHAUSTED, restarts=3, next_step=said)
    text = _shown(_seen(closed=[closed]))
    assert said in _line(text, "gpu-1")
    assert "waits" not in text


def test_a_closed_one_of_which_nobody_knows_the_outcome_says_how_it_ended() -> None:
    said = "the workflow terminated without a result"
    assert said in _shown(_seen(closed=[_closed(outcome=None, next_step=said)]))


def test_in_a_narrow_terminal_an_incident_is_one_line_that_begins_with_its_state() -> None:
    seen = _seen(_view("gpu-1", Verdict.HUNG), open=[_incident(restarts=2, phase=Phase.COOLING)])
    text = _shown(seen, width=80)
    assert "cooling down, 2 restarts: in 1m30s: " in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "remediation" not in text


_OPEN = [_incident(server=f"open-{n}", incident=f"{n}") for n in range(30)]
_ENDED = [_closed(server=f"closed-{n}", incident=f"{n}") for n in range(20)]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (140, 40), (200, 60)])
@pytest.mark.parametrize(
    ("servers", "opened", "closed", "alerts"),
    [
        (4, 1, 3, 5),
        (4, 0, 20, 50),
        (75, 30, 20, 9),
        (200, 2, 0, 0),
        (0, 0, 0, 0),
        (12, 12, 12, 12),
    ],
)
def test_it_fits_the_terminal(  # noqa: PLR0917
    width: int, height: int, servers: int, opened: int, closed: int, alerts: int
) -> None:
    why = "a reason that is far longer than any terminal has columns " * 4
    views = [_view(f"gpu-{n:03}", Verdict.HUNG, why=why) for n in range(servers)]
    seen = _seen(*views, open=_OPEN[:opened], closed=_ENDED[:closed], problems=["no answer"])
    text = _shown(seen, *(f"page: number {n}" for n in range(alerts)), width=width, height=height)
    assert len(text.splitlines()) <= height
    assert all(len(line) <= width for line in text.splitlines())
    assert text.count("gpu-") >= min(2, servers)
    assert text.count("open-") >= min(2, opened)
    assert text.rstrip().endswith("Ctrl-C stops everything that this started")


def test_what_has_no_room_is_counted() -> None:
    text = _shown(_seen(*(_view(f"gpu-{n:02}") for n in range(30)), open=_OPEN), height=40)
    shown = text.count("gpu-"), text.count("open-")
    assert f"and {30 - shown[0]} more" in text
    assert f"and {30 - shown[1]} more" in text


def test_what_cannot_be_read_stands_below() -> None:
    text = _shown(_seen(_view("gpu-1"), problems=["the incidents can't be read: timeout"]))
    assert "the incidents can't be read: timeout" in text


def test_the_last_alerts_stand_below() -> None:
    text = _shown(_seen(_view("gpu-1")), *(f"page: number {n}" for n in range(9)))
    assert "page: number 8" in text
    assert "page: number 1" not in text


def test_the_first_lines_are_the_whole_state() -> None:
    seen = _seen(_view("gpu-1"), _view("gpu-2", Verdict.HUNG, why="heartbeat 9s old"))
    assert list(changes(None, seen)) == ["gpu-1: busy", "gpu-2: hung (heartbeat 9s old)"]


def test_a_worker_that_takes_jobs_and_rests_is_no_news() -> None:
    idle = _seen(_view("gpu-1", Verdict.IDLE))
    assert list(changes(_seen(_view("gpu-1", Verdict.BUSY)), idle)) == []


def test_a_turn_to_the_worse_and_back_is_news() -> None:
    well, hung = _seen(_view("gpu-1")), _seen(_view("gpu-1", Verdict.HUNG))
    assert list(changes(well, hung)) == ["gpu-1: hung"]
    assert list(changes(hung, well)) == ["gpu-1: busy"]


def test_a_remediation_is_news_at_each_phase_and_at_its_end() -> None:
    persisting, cooling = _seen(open=[_incident()]), _seen(open=[_incident(phase=Phase.COOLING)])
    assert list(changes(_seen(), persisting)) == [
        "gpu-1: remediation persisting; next: read again, and act if it is still true"
    ]
    assert list(changes(persisting, persisting)) == []
    assert len(list(changes(persisting, cooling))) == 1
    assert list(changes(cooling, _seen(closed=[_closed()]))) == [
        "gpu-1: remediation closed: resolved; restarted, and healthy since"
    ]
