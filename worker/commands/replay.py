"""``steady replay``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.commands.exits import Exit, Stop
from worker.commands.options import AsJson

if TYPE_CHECKING:
    from datetime import datetime

    from fleet.config import Fleet
    from worker.replay import Material, Replay


#: A server that flaps for a week would fill the screen for pages.
_MOST_SHOWN = 100


def replay(
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="How far to look back, like 12h.")
    ] = "7d",
    tried: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A threshold to try, like persist=1m. Repeatable."
        ),
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="NAME", help="Only one server.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge recorded readings again, under other thresholds, and print what would have been
    restarted: a policy is tried before it acts.

    `steady replay --since 7d --set persist=1m --set budget.limit=2`

    The keys are those of the fleet file's `[defaults]` that judge and restart: stale_after,
    observations, skew_tolerance, stalled_after, load_limit, persist_hung (or persist),
    persist_error, cooldown, budget.limit, budget.window. Without `--set` it shows what the fleet
    file makes of them. Nothing is changed, and the mode does not count.

    Only readings that were bad, and the first good one after, are kept: what that can't tell is
    printed with the answer.

    JSON: at, since, kept_since (null: nothing was kept), readings, dropped, set; stretches: each
    with server, verdict, first, ended (null: it goes on), now and then (null: no `--set`), each
    with restarted_at, refused_at, said; really (restarts that were), by_itself; limits; problems.
    """
    from worker.client import with_temporal
    from worker.render import as_json as print_json
    from worker.render import console, remark, say

    changed, begin = _tried(tried or []), _begin(since)
    fleet, material = with_temporal(lambda client: _read(client, server))
    found = _replayed(fleet, material, begin, changed, server)
    shown = ", ".join(tried or [])
    if as_json:
        print_json({**found.model_dump(mode="json"), "set": tried or []})
        return
    from worker.replay import summary

    if found.stretches:
        console().print(_table(found, with_change=bool(changed)))
        left_out = len(found.stretches) - _MOST_SHOWN
        if left_out > 0:
            remark(f"{left_out} older ones are left out here: --json has all, --server fewer")
    for line in summary(found, shown):
        say(line)
    for line in (*found.limits, *found.problems):
        remark(line)


def _tried(typed: list[str]) -> dict[str, Any]:
    from fleet.whatif import NoSuchChange, changes

    try:
        return changes(typed)
    except NoSuchChange as problem:
        raise Stop(str(problem), Exit.WRONG_INPUT) from problem


def _begin(since: str) -> "datetime":
    from datetime import UTC, datetime

    from fleet.durations import parse

    try:
        return datetime.now(UTC) - parse(since)
    except ValueError as problem:
        said = f'--since: {since!r} is no duration: write a number and a unit, like "7d" or "12h"'
        raise Stop(said, Exit.WRONG_INPUT) from problem


async def _read(client: Any, server: str | None) -> "tuple[Fleet, Material]":
    from worker.client import applied, known
    from worker.replay import read_material

    _, fleet = await applied(client)
    if server is not None:
        known(server, fleet.servers)
    return fleet, await read_material(client, fleet)


def _replayed(
    fleet: "Fleet",
    material: "Material",
    begin: "datetime",
    changed: dict[str, Any],
    server: str | None,
) -> "Replay":
    from fleet.policy import Policy, merged
    from fleet.whatif import NoSuchChange, applied
    from worker.replay import replay as judge_again

    def change(name: str) -> Policy:
        return applied(merged(fleet.defaults, fleet.servers[name].policy), changed)

    try:
        # Also where nothing was kept, a value that is no good is no good.
        for name in fleet.servers:
            change(name)
        return judge_again(material, fleet, begin, change if changed else None, server)
    except NoSuchChange as problem:
        raise Stop(f"--set {problem}", Exit.WRONG_INPUT) from problem


def _table(found: "Replay", *, with_change: bool) -> Any:
    from worker.render import table
    from worker.replay import lasted

    changed = ["with the change"] if with_change else []
    shown = table("server", "bad since (UTC)", "verdict", "lasted", "as it is", *changed, "really")
    for each in found.stretches[-_MOST_SHOWN:]:
        really = ", ".join(f"restart {at:%H:%M:%S}" for at in each.really) or "-"
        then = [each.then.said] if each.then is not None else []
        first = f"{each.first:%Y-%m-%d %H:%M:%S}"
        shown.add_row(
            each.server, first, each.verdict, lasted(each, found.at), each.now.said, *then, really
        )
    return shown
