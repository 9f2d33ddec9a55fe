"""The live view: snapshots as tables for a terminal. Only rendering; nothing is read here."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleet.contracts import Outcome, Pause, Phase, RemediationStatus
from fleet.durations import brief
from fleet.remediation import MEANING, PAGES
from fleet.verdicts import ACTIONABLE, GOOD, Verdict
from worker.snapshot import ServerView, Snapshot

_CLOSED_SHOWN = 8
_ALERTS_SHOWN = 5
_SERVERS_SHOWN = 60
_STALE = timedelta(seconds=30)


def screen(
    seen: Snapshot, place: str, ui_url: str | None, alerts: Sequence[str] = ()
) -> RenderableType:
    """The whole view. ``place`` says which fleet this is, ``ui_url`` where Temporal's UI is,
    ``alerts`` what people were told, newest last.
    """
    parts: list[RenderableType] = [header(seen, place, ui_url), servers_table(seen)]
    if seen.open or seen.closed:
        parts.append(incidents_table(seen))
    if alerts:
        parts.append(alerts_text(alerts))
    parts.append(footer(seen))
    return Group(*parts)


def header(seen: Snapshot, place: str, ui_url: str | None) -> Text:
    well = sum(view.verdict in GOOD for view in seen.servers)
    head = Text.assemble(("steady", "bold"), f" · {place}, version {seen.version}")
    head.append(f" · {well} of {len(seen.servers)} well, {len(seen.open)} open incidents\n")
    if ui_url is not None:
        head.append("Temporal UI ").append(ui_url, style=f"cyan link {ui_url}").append("\n")
    if is_paused(seen.fleet_pause, seen.at):
        head.append(f"the whole fleet is {_paused(seen.fleet_pause)}\n", style="yellow")
    return head


def servers_table(seen: Snapshot, most: int = _SERVERS_SHOWN) -> Table:
    shown = Table("server", "verdict", "for", "what is seen", "remediation", box=box.SIMPLE_HEAD)
    for view in _worst_first(seen.servers)[:most]:
        shown.add_row(
            view.server,
            verdict_text(view.verdict, view.pending),
            _ago(view.since, seen.at),
            _remark(view, seen.at, seen.sweep_every),
            str(view.phase or ""),
        )
    if (hidden := len(seen.servers) - most) > 0:
        shown.add_row(f"and {hidden} more", "", "", "`steady status` lists them all", "")
    return shown


def incidents_table(seen: Snapshot, closed: int = _CLOSED_SHOWN) -> Table:
    """Open incidents, then the last that ended."""
    shown = Table(
        "incident of", "verdict", "began", "restarts", "state", "next", box=box.SIMPLE_HEAD
    )
    for status in [*seen.open, *seen.closed[:closed]]:
        is_open = status.phase is not Phase.CLOSED
        shown.add_row(
            status.server,
            verdict_text(status.verdict),
            f"{_ago(status.since, seen.at)} ago" if status.since is not None else "",
            str(status.restarts),
            outcome_text(status),
            _next(status, seen.at) if is_open else _meaning(status.outcome),
            style="" if is_open else "dim",
        )
    return shown


def alerts_text(alerts: Sequence[str]) -> Text:
    lines = [Text("alerts delivered", style="bold"), *map(Text, alerts[-_ALERTS_SHOWN:])]
    return Text("\n").join(lines).append("\n")


def footer(seen: Snapshot) -> Text:
    lines = [Text(problem, style="yellow") for problem in seen.problems[:3]]
    return Text("\n").join([*lines, Text("Ctrl-C stops everything that this started", style="dim")])


def verdict_text(verdict: Verdict | None, pending: Verdict | None = None) -> Text:
    if verdict is None:
        return Text(f"{pending}?" if pending is not None else "not seen yet", style="dim")
    style = "green" if verdict in GOOD else "bold red" if verdict in ACTIONABLE else "yellow"
    text = Text(str(verdict), style=style)
    return text.append(f" ({pending}?)", style="yellow") if pending is not None else text


def outcome_text(status: RemediationStatus) -> Text:
    if status.outcome is None:
        return Text(str(status.phase), style="cyan")
    bad = status.outcome in PAGES
    return Text(str(status.outcome), style="bold red" if bad else "green")


def changes(before: Snapshot | None, now: Snapshot) -> Iterable[str]:
    """A line for each thing that a person would want to know, for where there is no terminal."""
    old = {view.server: view.verdict for view in before.servers} if before is not None else {}
    for view in now.servers:
        if view.verdict is not None and _differs(old.get(view.server), view.verdict):
            yield f"{view.server}: {view.verdict}" + (f" ({view.why})" if view.why else "")
    known = _states(before)
    for key, (state, status) in _states(now).items():
        if key not in known or known[key][0] != state:
            then = _then(status)
            yield f"{status.server}: remediation {state}" + (f"; {then}" if then else "")
    for problem in now.problems:
        if before is None or problem not in before.problems:
            yield problem


def _differs(before: Verdict | None, now: Verdict) -> bool:
    """A worker that takes jobs is busy and idle by turns; that is no news."""
    return before is not now and not (before in GOOD and now in GOOD)


def _then(status: RemediationStatus) -> str:
    if status.phase is Phase.CLOSED:
        return _meaning(status.outcome)
    return f"next: {status.next_step}" if status.next_step else ""


def _states(seen: Snapshot | None) -> dict[tuple[str, str | None], tuple[str, RemediationStatus]]:
    if seen is None:
        return {}
    found = {}
    for status in [*seen.closed, *seen.open]:
        state = f"{status.phase}" + (f": {status.outcome}" if status.outcome is not None else "")
        found[status.server, status.incident] = (state, status)
    return found


def is_paused(pause: Pause | None, now: datetime) -> bool:
    return pause is not None and pause.until > now


def _paused(pause: Pause | None) -> str:
    if pause is None:
        return ""
    why = f": {pause.why}" if pause.why else ""
    return f"paused until {pause.until:%H:%M:%S} UTC by {pause.who or 'somebody'}{why}"


def _remark(view: ServerView, now: datetime, sweep_every: timedelta) -> str:
    """Why the verdict is what it is; first of all that it is old, or that a person paused it."""
    if view.seen_at is not None and now - view.seen_at > _STALE + 3 * sweep_every:
        return f"last read {_ago(view.seen_at, now)} ago: is a worker running?"
    if is_paused(view.paused, now):
        return _paused(view.paused)
    return view.why


def _worst_first(servers: list[ServerView]) -> list[ServerView]:
    def rank(view: ServerView) -> int:
        if view.verdict in ACTIONABLE:
            return 0
        return 3 if view.verdict in GOOD else 1 if view.verdict is not None else 2

    return sorted(servers, key=lambda view: (rank(view), view.server))


def _next(status: RemediationStatus, now: datetime) -> str:
    if status.next_at is None or status.next_at <= now:
        return status.next_step
    return f"{status.next_step} (in {brief(status.next_at - now)})"


def _meaning(outcome: Outcome | None) -> str:
    return MEANING[outcome] if outcome is not None else ""


def _ago(moment: datetime | None, now: datetime) -> str:
    return brief(now - moment) if moment is not None else ""
