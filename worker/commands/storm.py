"""``steady storm``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.commands.exits import Exit
from worker.commands.options import AsJson, Why

if TYPE_CHECKING:
    from datetime import datetime

    from temporalio.client import Client

    from fleet.contracts.storm import Opened
    from worker.storms import StormView


def storm(
    *,
    open_: Annotated[
        bool, typer.Option("--open", help="End the fleet-wide suspicion: restarts go on.")
    ] = False,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Show who is restarted now, who waits for a turn, and what blocks all of it until when.

    With `--open` restarts are possible again, and what waits is judged anew. Exit code 1: nothing
    was blocked.

    JSON: at_once (the limit), blocked_by (empty: nothing), since, until (null: not good yet), bad
    (servers that aroused the suspicion, ten at most); holders and waiting, each with server, since,
    by_hand; shards that were heard of, each with shard, at, managed, bad, suspect_since,
    good_since. With `--open` also opened.
    """
    from worker.client import with_temporal
    from worker.render import as_json as print_json
    from worker.render import say

    seen, opened = with_temporal(lambda client: _ask(client, why, opens=open_), acts=open_)
    if as_json:
        more = {"opened": opened.suspicion is not None} if opened is not None else {}
        print_json({**seen.model_dump(mode="json"), **more})
    else:
        if opened is not None:
            say(_said(opened))
        _show(seen)
    if opened is not None and opened.suspicion is None:
        raise typer.Exit(Exit.NO)


async def _ask(client: "Client", why: str, *, opens: bool) -> "tuple[StormView, Opened | None]":
    from fleet.contracts.storm import OpenByHand
    from worker.client import applied, whoami
    from worker.storms import open_storm, storm_view

    _, fleet = await applied(client)
    opened = await open_storm(client, OpenByHand(who=whoami(), why=why)) if opens else None
    return await storm_view(client, fleet), opened


def _said(opened: "Opened") -> str:
    from fleet.details import many

    if opened.suspicion is None:
        return "nothing was blocked"
    return f"opened: {many(opened.waiting, 'restart')} that waited will be judged anew"


def _show(seen: "StormView") -> None:
    from fleet.details import many
    from worker.render import console, say

    if seen.blocked_by:
        say(f"no restart is possible: {seen.blocked_by}")
        say(f"  since {_at(seen.since)}, until {_until(seen.until)}; or `steady storm --open`")
        say(f"  bad: {', '.join(seen.bad)}")
    held, waiting = len(seen.holders), len(seen.waiting)
    say(f"at most {many(seen.at_once, 'restart')} at once: {held} now, {waiting} waiting")
    if seen.holders or seen.waiting:
        console().print(_slots(seen))
    if seen.shards:
        console().print(_shards(seen))


def _slots(seen: "StormView") -> Any:
    from worker.render import table

    shown = table("server", "slot", "since (UTC)")
    for each in seen.holders:
        shown.add_row(each.server, "held, by hand" if each.by_hand else "held", _at(each.since))
    for each in seen.waiting:
        shown.add_row(each.server, "waits", _at(each.since))
    return shown


def _shards(seen: "StormView") -> Any:
    from worker.render import table

    shown = table("shard", "servers that count", "bad", "as of (UTC)", "")
    for each in seen.shards:
        state = ""
        if each.suspect_since is not None:
            good = f", good since {_at(each.good_since)}" if each.good_since else ""
            state = f"suspected since {_at(each.suspect_since)}{good}"
        shown.add_row(str(each.shard), str(each.managed), str(each.bad), _at(each.at), state)
    return shown


def _at(moment: "datetime | None") -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment is not None else "-"


def _until(moment: "datetime | None") -> str:
    return f"{_at(moment)} if it stays good" if moment is not None else "it has been good for long"
