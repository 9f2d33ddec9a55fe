"""``steady status``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.commands.options import AsJson

if TYPE_CHECKING:
    from fleet.contracts.remediation import RemediationStatus
    from worker.snapshot import Snapshot

KEYS = (
    *("at", "fleet", "version", "applied_at", "temporal_ui", "fleet_pause"),
    "blocked_by",
    *("servers", "open", "problems"),
)


def status(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One server, with its story.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the servers, worst first, and the open incidents.

    With a name: that server, and the timeline of its incident. `steady up` shows all of it live.

    JSON: at, fleet, version, applied_at, temporal_ui, fleet_pause, blocked_by (what blocks every
    restart; empty: nothing); servers, each with server, verdict (null: not seen yet; what an open
    incident proved by a request counts more than a sweep), since, pending, why, seen_at, phase,
    paused; open: incidents as in `steady incidents`; problems: what
    could not be read.
    """
    from worker.client import with_temporal
    from worker.render import as_json as print_json
    from worker.render import remark

    seen = _of(with_temporal(_snapshot), name)
    if as_json:
        print_json(_document(seen))
    else:
        _show(seen, with_story=name is not None)
    for problem in seen.problems:
        remark(problem)


async def _snapshot(client: Any) -> "Snapshot":
    from worker.client import applied
    from worker.snapshot import fetch_snapshot

    await applied(client)
    return await fetch_snapshot(client, closed=20)


def _of(seen: "Snapshot", name: str | None) -> "Snapshot":
    if name is None:
        return seen
    from worker.client import known

    known(name, [view.server for view in seen.servers])
    return seen.model_copy(
        update={
            "servers": [view for view in seen.servers if view.server == name],
            "open": [each for each in seen.open if each.server == name],
            "closed": [each for each in seen.closed if each.server == name],
        }
    )


def _show(seen: "Snapshot", *, with_story: bool) -> None:
    from worker import live
    from worker.render import console
    from worker.room import everything

    out = console()
    room = everything(seen, out.width)
    out.print(live.header(seen, seen.fleet or "no fleet", seen.temporal_ui))
    out.print()
    out.print(live.servers_table(seen, room))
    if seen.open:
        out.print()
        out.print(live.incidents_table(seen.model_copy(update={"closed": []}), room))
    if with_story:
        for incident in [*seen.open, *seen.closed][:1]:
            _tell(incident)


def _tell(incident: "RemediationStatus") -> None:
    from fleet.details import meaning
    from worker.render import say

    came_to = f"{incident.outcome}, {meaning(incident)}" if incident.outcome else incident.phase
    say(f"\nincident {incident.incident or 'without a name'}: {came_to}")
    for moment in incident.timeline:
        say(f"{moment.at:%Y-%m-%d %H:%M:%S} {moment.text}")


def _document(seen: "Snapshot") -> dict[str, Any]:
    return seen.model_dump(mode="json", include=set(KEYS))
