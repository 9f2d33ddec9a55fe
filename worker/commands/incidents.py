"""``steady incidents``."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from worker.commands.exits import Exit, Stop
from worker.commands.options import AsJson

if TYPE_CHECKING:
    from worker.snapshot import Snapshot


_By = Literal["server", "week"]


def incidents(  # noqa: PLR0913 - each is an option of the command
    *,
    only_open: Annotated[bool, typer.Option("--open", help="Only those that are open.")] = False,
    server: Annotated[
        str | None, typer.Option("--server", metavar="NAME", help="Only those of one server.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=200, help="How many closed ones at most.")
    ] = 20,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="DURATION", help="Count and time those of so long, like 7d."
        ),
    ] = None,
    by: Annotated[
        _By | None, typer.Option("--by", help="With --since: a row for each server or week.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List incidents and what came of them: the open ones, then the closed ones, newest first.

    `steady incident show ID` tells the story of one. With `--since` they are counted instead, with
    the median time to detect, to restart and to recover, each from the first observation:

    `steady incidents --since 28d --by week`

    How far back that reaches is how long Temporal keeps what has ended: its namespace's retention.

    JSON: incidents, each with server, incident, phase, verdict, outcome (null: open), since,
    detected_at, restarted_at, closed_at, restarts, pages, job, next_step, next_at, timeline (at,
    text), answers (to people, by the ID of the request), tries (runs of it that were read: a
    restart that can't be carried out is tried again in a new one); problems. With `--since`: since,
    by, rows, each with group, count, open, detected, restarted, recovered (how many were),
    restarts, detect_s, restart_s, recover_s (medians; null: none), outcomes (how often each);
    problems.
    """
    if since is not None or by is not None:
        _count(since or "7d", by, server, as_json=as_json, only_open=only_open)
        return
    from worker.client import with_temporal
    from worker.render import as_json as print_json
    from worker.render import remark

    seen = with_temporal(lambda client: _snapshot(client, limit, server, only_open=only_open))
    if as_json:
        listed = [
            {**each.model_dump(mode="json"), "tries": seen.tries.get(each.incident or "", 1)}
            for each in (*seen.open, *seen.closed)
        ]
        print_json({"incidents": listed, "problems": seen.problems})
    else:
        _show(seen, "no open incidents" if only_open else "no incidents")
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


def _show(seen: "Snapshot", otherwise: str) -> None:
    from worker import live
    from worker.render import console, say
    from worker.room import everything

    out = console()
    if seen.open or seen.closed:
        out.print(live.incidents_table(seen, everything(seen, out.width)))
    else:
        say(otherwise)


def _count(
    since: str, by: _By | None, server: str | None, *, as_json: bool, only_open: bool
) -> None:
    from worker.client import with_temporal
    from worker.commands import statistics
    from worker.render import as_json as print_json
    from worker.render import console, remark

    if only_open:
        raise Stop("--open lists, and --since counts: choose one of them", Exit.WRONG_INPUT)
    begin = statistics.begin(since)
    rows, problems = with_temporal(
        lambda client: statistics.counted(client, begin, by, server=server)
    )
    if as_json:
        listed = [row.model_dump(mode="json") for row in rows]
        document = {"since": begin.isoformat(), "by": by, "rows": listed, "problems": problems}
        print_json(document)
    else:
        console().print(statistics.table(rows, by))
    for problem in problems:
        remark(problem)
