"""``steady audit``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.commands.exits import Exit
from worker.commands.options import AsJson
from worker.errors import SettingError, SetupError

if TYPE_CHECKING:
    from fleet.audit import Row
    from fleet.config import Fleet


def audit(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A fleet file. Without it, the fleet in force."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print each verdict that the fleet's detectors can give, who acts on it, and why.

    The exit code is 1 where a verdict has no owner. Modes count: on a server that is only alerted
    for, or has no restart, a hang belongs to a person. With a file no Temporal is needed. Without
    one, and where no fleet was applied yet, the table is the general one; so it is where the fleet
    could not be asked for, and then the exit code is 3.

    JSON: fleet (its name, or null), ok, verdicts: each with verdict, owner (null: nobody),
    through, why, servers.
    """
    from fleet import audit as table
    from worker.render import as_json as print_json
    from worker.render import console, remark

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
    if as_json:
        print_json(
            {
                "fleet": fleet.fleet.name if fleet is not None else None,
                "ok": not bad,
                "verdicts": [_document(row) for row in rows],
            }
        )
    else:
        console().print(_table(rows))
    for row in bad:
        remark(f"{row.verdict} has no owner: name one in fleet/verdicts.py")
    if bad:
        raise typer.Exit(Exit.NO)
    if unasked is not None:
        raise unasked


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
