"""The live view: snapshots as tables for a terminal. Only rendering; nothing is read here."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleet.contracts.fleet import Pause
from fleet.contracts.remediation import Phase, RemediationStatus
from fleet.details import many, meaning
from fleet.durations import brief
from fleet.remediation import MEANING, PAGES
from fleet.verdicts import ACTIONABLE, GOOD, Verdict
from worker.room import Room
from worker.snapshot import ServerView, Snapshot

_STALE = timedelta(seconds=30)


def screen(
    seen: Snapshot, place: str, ui_url: str | None, alerts: Sequence[str], room: Room
) -> RenderableType:
    """The whole view. ``place`` says which fleet this is, ``ui_url`` where Temporal's UI is,
    ``alerts`` what people were told, newest last.
    """
    parts: list[RenderableType] = [header(seen, place, ui_url), "", servers_table(seen, room)]
    if seen.open or seen.closed:
        parts += ["", incidents_table(seen, room)]
    if alerts and room.alerts:
        parts += ["", alerts_text(alerts[-room.alerts :])]
    return Group(*parts, "", footer(seen))


def header(seen: Snapshot, place: str, ui_url: str | None) -> Text:
    well = sum(view.verdict in GOOD for view in seen.servers)
    head = Text.assemble(("steady", "bold"), f" · {place}, version {seen.version}")
    head.append(f" · {well} of {len(seen.servers)} well, {many(len(seen.open), 'open incident')}")
    if ui_url is not None:
        head.append("\nTemporal UI ").append(ui_url, style=f"cyan link {ui_url}")
    if is_paused(seen.fleet_pause, seen.at):
        head.append(f"\nthe whole fleet is {_paused(seen.fleet_pause)}", style="yellow")
    if seen.blocked_by:
        head.append(
            f"\nno restart is possible: {seen.blocked_by}; `steady storm`", style="bold red"
        )
    return head


def servers_table(seen: Snapshot, room: Room) -> Table:
    """The servers, worst first. A narrow one leaves the remediation to the incidents below it."""
    shown = _table("server", "verdict", "for", folding="what is seen")
    if not room.narrow:
        shown.add_column("remediation", no_wrap=True)
    for view in _worst_first(seen.servers)[: room.servers]:
        shown.add_row(
            view.server,
            verdict_text(view.verdict, view.pending),
            _ago(view.since, seen.at),
            _cut(_remark(view, seen.at, seen.sweep_every), room),
            *([] if room.narrow else [str(view.phase or "")]),
        )
    if (hidden := len(seen.servers) - room.servers) > 0:
        shown.add_row(f"and {hidden} more", "", "", "`steady status` lists them all")
    return shown


def incidents_table(seen: Snapshot, room: Room) -> Table:
    """Open incidents, then the last that ended."""
    columns = [] if room.narrow else ["restarts", "state"]
    last = "state" if room.narrow else "next"
    shown = _table("incident of", "verdict", "began", *columns, folding=last)
    for status in seen.open[: room.open]:
        shown.add_row(*_incident(_with_verdict(status, seen), seen, room))
    if (hidden := len(seen.open) - room.open) > 0:
        shown.add_row(f"and {hidden} more", "", "", *columns and ["", ""], "`steady incidents`")
    for status in seen.closed[: room.closed]:
        shown.add_row(*_incident(status, seen, room), style="dim")
    return shown


def _with_verdict(status: RemediationStatus, seen: Snapshot) -> RemediationStatus:
    """A restart by hand judges nothing: what the sweeps say of the server is shown then."""
    if status.verdict is not None:
        return status
    known = next((view.verdict for view in seen.servers if view.server == status.server), None)
    return status.model_copy(update={"verdict": known})


def _incident(status: RemediationStatus, seen: Snapshot, room: Room) -> list[RenderableType]:
    began = f"{_ago(status.since, seen.at)} ago" if status.since is not None else ""
    unjudged = status.verdict is None and status.phase is Phase.CLOSED
    verdict = "-" if unjudged else verdict_text(status.verdict)
    cells: list[RenderableType] = [status.server, verdict, began]
    state, then = outcome_text(status), _next(status, seen.at)
    if (tries := seen.tries.get(status.incident or "", 1)) > 1:
        state.append(f" ({tries} tries)")
    if not room.narrow:
        return [*cells, str(status.restarts), state, _cut(then, room)]
    count = f", {many(status.restarts, 'restart')}" if status.restarts else ""
    return [*cells, _cut(state.append(f"{count}: {then}" if then else count, "default"), room)]


def _table(*columns: str, folding: str) -> Table:
    """Of the columns the ``folding`` one, the last, gives way where there is no room for all."""
    shown = Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in shown.columns:
        column.no_wrap = True
    shown.add_column(folding)
    return shown


def _cut(text: str | Text, room: Room) -> Text:
    whole = Text(text) if isinstance(text, str) else text
    whole.no_wrap, whole.overflow = room.one_line, "ellipsis" if room.one_line else "fold"
    return whole


def alerts_text(alerts: Sequence[str]) -> Text:
    lines = [Text("alerts delivered", style="bold"), *map(Text, alerts)]
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def footer(seen: Snapshot) -> Text:
    lines = [Text(problem, style="yellow") for problem in seen.problems[:3]]
    last = Text("Ctrl-C stops everything that this started", style="dim")
    return Text("\n", no_wrap=True, overflow="ellipsis").join([*lines, last])


def verdict_text(verdict: Verdict | None, pending: Verdict | None = None) -> Text:
    if verdict is None:
        return Text(f"{pending}?" if pending is not None else "not seen yet", style="dim")
    style = "green" if verdict in GOOD else "bold red" if verdict in ACTIONABLE else "yellow"
    text = Text(str(verdict), style=style)
    return text.append(f" ({pending}?)", style="yellow") if pending is not None else text


def outcome_text(status: RemediationStatus) -> Text:
    if status.outcome is None:
        return Text(str(status.phase), style="cyan")
    if status.outcome not in PAGES:
        return Text(str(status.outcome), style="green")
    has_recovered = meaning(status) != MEANING[status.outcome]
    return Text(str(status.outcome), style="yellow" if has_recovered else "bold red")


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
        return meaning(status)
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
    """What comes next, and first in how long; of a closed one, what came of it."""
    if status.phase is Phase.CLOSED:
        return meaning(status) or status.next_step
    if status.next_at is None or (wait := brief(status.next_at - now)) == "0s":
        return status.next_step
    return f"in {wait}: {status.next_step}"


def _ago(moment: datetime | None, now: datetime) -> str:
    return brief(now - moment) if moment is not None else ""
