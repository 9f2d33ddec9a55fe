"""``steady incidents``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.commands.options import AsJson

if TYPE_CHECKING:
    from worker.snapshot import Snapshot


def incidents(
    only_open: Annotated[bool, typer.Option("--open", help="Only those that are open.")] = False,
    server: Annotated[
        str | None, typer.Option("--server", metavar="NAME", help="Only those of one server.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=200, help="How many closed ones at most.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """List incidents and what came of them: the open ones, then the closed ones, newest first.

    JSON: incidents, each with server, incident, phase, verdict, outcome (null: open), since,
    detected_at, closed_at, restarts, pages, job, next_step, next_at, timeline (at, text), answers
    (to people, by the ID of the request); problems.
    """
    from worker.client import with_temporal
    from worker.render import as_json as print_json
    from worker.render import remark

    seen = with_temporal(lambda client: _snapshot(client, limit, server, only_open=only_open))
    if as_json:
        listed = [each.model_dump(mode="json") for each in (*seen.open, *seen.closed)]
        print_json({"incidents": listed, "problems": seen.problems})
    else:
        _show(seen)
    for problem in seen.problems:
        remark(problem)


async def _snapshot(client: Any, limit: int, server: str | None, *, only_open: bool) -> "Snapshot":
    from worker.snapshot import fetch_snapshot

    seen = await fetch_snapshot(client, closed=limit if server is None else 200)
    wanted = {
        "open": [each for each in seen.open if server in (None, each.server)],
        "closed": [each for each in seen.closed if server in (None, each.server)][:limit],
    }
    return seen.model_copy(update={**wanted, **({"closed": []} if only_open else {})})


def _show(seen: "Snapshot") -> None:
    from worker import live
    from worker.render import console, say
    from worker.room import everything

    out = console()
    if seen.open or seen.closed:
        out.print(live.incidents_table(seen, everything(seen, out.width)))
    else:
        say("no incidents")
