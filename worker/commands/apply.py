"""``steady apply``."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.commands.exits import Stop
from worker.commands.options import AsJson, FleetFile, RemoteWorker

if TYPE_CHECKING:
    from fleet.config import Fleet
    from fleet.contracts.fleet import ApplyResult
    from fleet.difference import Difference, Edit


def apply(
    file: FleetFile,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Remove servers without asking.")
    ] = False,
    remote_worker: RemoteWorker = False,
    as_json: AsJson = False,
) -> None:
    """Make a fleet file the fleet that is watched.

    It is checked as by `steady validate`. What would change is shown key by key; then it is stored
    in Temporal, versioned, and the health schedules follow. Servers that the file no longer has
    are removed only with --yes, or when you say so. A worker must be running.

    JSON: applied; version (after it); added, removed, altered (names of servers); edits, each with
    key, before, after (null: not there, or the default).
    """
    from fleet.difference import difference
    from worker.client import fleet_state, with_temporal
    from worker.loading import load
    from worker.render import as_json as print_json

    fleet = _with_ui(load(file, files_are_here=not remote_worker))
    state = with_temporal(fleet_state, acts=not dry_run)
    change = difference(state.fleet if state is not None else None, fleet)
    version = state.version if state is not None else 0
    if not as_json:
        _show(change, version)
    if not dry_run and change:
        _consent(change.removed, ask=not yes)
    result = None if dry_run else with_temporal(lambda client: _put_in_force(client, fleet))
    if as_json:
        print_json(_document(change, result, version))
    elif result is not None:
        _report(result)


def _with_ui(fleet: "Fleet") -> "Fleet":
    """With links to the Temporal UI of this folder's ``steady up``, as that one puts them in."""
    from worker.apply import with_ui
    from worker.client import settings
    from worker.connection import named_address
    from worker.state import noted_temporal

    embedded = noted_temporal(settings().state_dir) if named_address() is None else None
    return with_ui(fleet, embedded.ui_url if embedded is not None else None)


def _consent(removed: list[str], *, ask: bool) -> None:
    if not removed or not ask:
        return
    names = ", ".join(removed[:10]) + (" …" if len(removed) > 10 else "")
    if not sys.stdin.isatty():
        raise Stop(f"nothing was changed: --yes is needed to remove {names}")
    if not typer.confirm(f"Remove {names} from the fleet?", err=True):
        raise Stop("nothing was changed")


async def _put_in_force(client: Any, fleet: "Fleet") -> "ApplyResult":
    from fleet.contracts.fleet import ApplyRequest
    from worker.apply import apply_fleet
    from worker.attributes import register_search_attributes
    from worker.client import settings, whoami

    attributes = await register_search_attributes(client)
    request = ApplyRequest(fleet=fleet, who=whoami(), search_attributes=attributes.available)
    return await apply_fleet(client, request, settings().task_queue)


def _show(change: "Difference", version: int) -> None:
    from worker.render import say

    if not change:
        say(f"nothing changes: version {version} is the same fleet")
    for sign, names in (("+", change.added), ("-", change.removed)):
        for name in names:
            say(f"{sign} servers.{name}")
    for edit in change.edits:
        say(f"~ {edit.key}: {_value(edit.before)} → {_value(edit.after)}")
    if change.altered:
        say(f"this alters {', '.join(change.altered)}")
    if change.is_of_gateways:
        say("a gateway that runs serves what its file said when it began: start it anew")


def _value(value: object) -> str:
    import json

    return "default" if value is None else json.dumps(value, ensure_ascii=False)


def _report(result: "ApplyResult") -> None:
    from worker.render import say

    schedules = ", ".join(result.schedules)
    say(f"version {result.version} is in force; schedules: {schedules}")


def _document(
    change: "Difference", result: "ApplyResult | None", version: int
) -> dict[str, object]:
    return {
        "applied": result is not None,
        "version": result.version if result is not None else version,
        "added": change.added,
        "removed": change.removed,
        "altered": change.altered,
        "edits": [_edit(each) for each in change.edits],
    }


def _edit(edit: "Edit") -> dict[str, object]:
    return {"key": edit.key, "before": edit.before, "after": edit.after}
