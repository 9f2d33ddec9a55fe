"""``steady audit``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.commands.exits import Exit, Stop
from worker.commands.options import AsJson
from worker.errors import SettingError, SetupError

if TYPE_CHECKING:
    from fleet.audit import Row
    from fleet.config import Fleet
    from worker.unattended import LiveAudit


def audit(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A fleet file. Without it, the fleet in force."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="List what is bad now and nobody acts on.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print each verdict that the fleet's detectors can give, who acts on it, and why.

    The exit code is 1 where a verdict has no owner. Modes count: on a server that is only alerted
    for, or has no restart, a hang belongs to a person. With a file no Temporal is needed. Without
    one, and where no fleet was applied yet, the table is the general one; so it is where the fleet
    could not be asked for, and then the exit code is 3.

    With --live, each server of the fleet in force that has been bad for longer than its
    unattended_after (1h) while nothing was done for as long: no restart is under way or due, no
    message arrived, nobody has paused it; and those that no sweep has looked at for that long. The
    exit code is 1 where there is one.

    JSON: fleet (its name, or null), ok, verdicts: each with verdict, owner (null: nobody),
    through, why, servers; ladders: the steps of each server that has several. With --live: at,
    fleet, ok; unattended: each with server, verdict, since, acted_at (null: never), why; blind:
    each with shard, servers, since, why; problems: what could not be read.
    """
    if live:
        if file is not None:
            raise Stop("--live is of the fleet in force: leave FILE out", Exit.WRONG_INPUT)
        _print_live(as_json=as_json)
        return
    from fleet import audit as table
    from worker.render import as_json as print_json
    from worker.render import console, remark, say

    unasked: SetupError | None = None
    fleet = None
    try:
        fleet = _fleet(file)
    except SettingError:
        raise
    except SetupError as problem:
        unasked = problem
        remark("this is the table of any fleet, since yours could not be asked for")
    rows = table.audit(fleet)
    bad = table.ownerless(rows)
    ladders = table.ladders(fleet) if fleet is not None else {}
    if as_json:
        print_json(
            {
                "fleet": fleet.fleet.name if fleet is not None else None,
                "ok": not bad,
                "verdicts": [_document(row) for row in rows],
                "ladders": ladders,
            }
        )
    else:
        console().print(_table(rows))
        for name, steps in ladders.items():
            say(f"{name} is restarted by {', then '.join(steps)}")
    for row in bad:
        remark(f"{row.verdict} has no owner: name one in fleet/verdicts.py")
    if bad:
        raise typer.Exit(Exit.NO)
    if unasked is not None:
        raise unasked


def _print_live(*, as_json: bool) -> None:
    from worker.client import with_temporal
    from worker.render import as_json as print_json
    from worker.render import console, remark, say

    found = with_temporal(_live)
    if as_json:
        print_json({**found.model_dump(mode="json"), "ok": found.ok})
    elif found.ok:
        say("every server that is bad has somebody who acts on it")
    else:
        console().print(_live_table(found))
    for problem in found.problems:
        remark(problem)
    if not found.ok:
        raise typer.Exit(Exit.NO)


async def _live(client: Any) -> "LiveAudit":
    from worker.client import applied
    from worker.sweeps import SweepReader
    from worker.unattended import Auditor

    state, fleet = await applied(client)
    return await Auditor(client).look(state, fleet, await SweepReader(client).fetch())


def _live_table(found: "LiveAudit") -> Any:
    from fleet.durations import brief
    from worker.render import table

    shown = table("server", "verdict", "for", "why nobody acts")
    for each in found.unattended:
        shown.add_row(each.server, each.verdict, brief(found.at - each.since), each.why)
    for blind in found.blind:
        shown.add_row(_few(blind.servers, 0), "not seen", brief(found.at - blind.since), blind.why)
    return shown


def _fleet(file: Path | None) -> "Fleet | None":
    from worker.client import fleet_state, with_temporal
    from worker.loading import load
    from worker.render import remark

    if file is not None:
        return load(file, files_are_here=False)
    state = with_temporal(fleet_state)
    if state is None:
        remark("this is the table of any fleet, since none has been applied yet")
    return state.fleet if state is not None else None


def _document(row: "Row") -> dict[str, Any]:
    named = row.ownership
    return {
        "verdict": row.verdict,
        "owner": named.owner if named is not None else None,
        "through": named.through if named is not None else None,
        "why": named.why if named is not None else None,
        "servers": row.servers,
    }


def _table(rows: "Sequence[Row]") -> Any:
    from worker.render import table

    servers = {name for row in rows for name in row.servers}
    some = any(len(row.servers) != len(servers) for row in rows)
    shown = table("verdict", "who acts", "workflow", "why", *(["servers"] if some else []))
    for row in rows:
        named = row.ownership
        shown.add_row(
            row.verdict,
            named.owner if named is not None else "[bold red]nobody[/]",
            named.through.removeprefix("workflow ") if named is not None else "",
            named.why if named is not None else "",
            *([_few(row.servers, len(servers))] if some else []),
        )
    return shown


def _few(names: Sequence[str], of: int, most: int = 4) -> str:
    if len(names) == of:
        return "all"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
