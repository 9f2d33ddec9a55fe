"""``steady drill``."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.commands.exits import Exit, Stop
from worker.commands.options import AsJson, ServerName, Why

if TYPE_CHECKING:
    from datetime import datetime

    from temporalio.client import Client

    from fleet.config import Fleet
    from fleet.contracts.drill import DrillStatus
    from fleet.contracts.fleet import FleetState


def drill(
    name: ServerName,
    yes: Annotated[bool, typer.Option("--yes", help="Freeze it without asking.")] = False,
    why: Why = "",
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End the drill that is under way, and thaw.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Freeze a server on purpose, and see whether steady finds and heals it, and in what time.

    Its process is stopped (SIGSTOP) in the middle of its work, over SSH. Nothing else is told:
    sweeps have to find it, and its remediation has to restart it, out of the server's budget. Where
    they don't, it is thawed. Only a server that the fleet file marks with `[servers.NAME.drill]` is
    ever touched, in mode `act`, without an open incident, a pause or a cooldown, and with budget to
    spare. The exit code is 1 unless it was healed.

    The drill is a workflow: it goes on where this command is ended, and thaws at its end. The
    command follows one that is under way already.

    `steady drill gpu-1 --why "after the update"`

    JSON: server, phase, outcome (healed, not_found, not_healed, not_frozen, never_busy, refused,
    cancelled, failed), why, who, expected (found, restarted, healed: durations after the freeze;
    null: it was refused), began_at, frozen_at, found_at, restarted_at, works_at, healed_at,
    closed_at, is_frozen (true: it may be stopped still), incident, restarts, next_step, next_at,
    timeline (at, text).
    """
    from worker.client import with_temporal
    from worker.render import as_json as print_json

    def work(client: "Client") -> Any:
        return _cancelled(client, name, why) if cancel else _drilled(client, name, why, yes=yes)

    end: DrillStatus = with_temporal(work, acts=True)
    if as_json:
        print_json(end.model_dump(mode="json"))
    else:
        _print(end)
    if not _is_good(end, cancel=cancel):
        raise typer.Exit(Exit.NO)


async def _drilled(client: "Client", name: str, why: str, *, yes: bool) -> "DrillStatus":
    from fleet.contracts.drill import DrillInput
    from worker import drills
    from worker.client import applied, known, settings, whoami
    from worker.render import remark

    state, fleet = await applied(client)
    known(name, fleet.servers)
    if await drills.is_under_way(client, name):
        remark(f"a drill of {name} is under way: it is followed")
        return await _followed(client, name)
    _confirm(_promise(state, fleet, name), name, yes=yes)
    request = DrillInput(
        server=name, who=whoami(), why=why[:300], search_attributes=state.search_attributes
    )
    await drills.begin(client, request, settings().task_queue)
    return await _followed(client, name)


def _promise(state: "FleetState", fleet: "Fleet", name: str) -> str:
    """What is going to happen.

    Raises:
        Stop: the fleet file or a pause forbids it; the workflow looks again.
    """
    from datetime import UTC, datetime

    from fleet.contracts.fleet import PresentPolicy
    from fleet.drill import expected, forbidden
    from fleet.drill_text import promise

    now = datetime.now(UTC)
    pauses = [state.pauses.get(name), state.fleet_pause]
    present = PresentPolicy(
        version=state.version,
        spec=fleet.spec(name),
        pause=max((p for p in pauses if p is not None), key=lambda p: p.until, default=None),
        sweep_every=fleet.fleet.sweep_every,
    )
    reasons = forbidden(present, name, now)
    if reasons:
        raise Stop(f"{name}: no drill: {'; '.join(reasons)}")
    return f"{name}: {promise(fleet.policy(name), expected(present))}"


def _confirm(promise: str, name: str, *, yes: bool) -> None:
    from worker.render import remark

    remark(promise)
    if yes:
        return
    if not sys.stdin.isatty():
        raise Stop("nothing was frozen: --yes is needed where nobody can confirm it")
    if typer.prompt(f"Type {name} to freeze it", err=True, default="", show_default=False) != name:
        raise Stop("nothing was frozen")


async def _followed(client: "Client", name: str) -> "DrillStatus":
    """Tell each moment of it on standard error, and return the end.

    Raises:
        Stop: nobody waits for it any longer.
    """
    from asyncio import CancelledError

    from fleet.contracts.drill import DrillPhase
    from worker import drills
    from worker.render import remark

    told: set[tuple[datetime, str]] = set()
    try:
        async for status in drills.follow(client, name):
            for moment in status.timeline:
                if (moment.at, moment.text) not in told:
                    remark(f"{moment.at:%H:%M:%S} {moment.text}")
            told.update((moment.at, moment.text) for moment in status.timeline)
            if status.phase is DrillPhase.CLOSED:
                return status
    except CancelledError:
        raise Stop(
            f"not waited for: the drill goes on, and thaws at its end; `steady drill {name}`"
            f" follows it, `steady drill {name} --cancel` ends it"
        ) from None
    raise AssertionError("it is followed until it is closed")


async def _cancelled(client: "Client", name: str, why: str) -> "DrillStatus":
    from uuid import uuid4

    from fleet.contracts.remediation import OperatorRequest
    from worker import drills
    from worker.client import applied, known, whoami

    known(name, (await applied(client))[1].servers)
    request = OperatorRequest(who=whoami(), why=why[:300], id=str(uuid4()))
    await drills.cancel(client, name, request)
    return await _followed(client, name)


def _is_good(end: "DrillStatus", *, cancel: bool) -> bool:
    from fleet.contracts.drill import DrillOutcome

    wanted = DrillOutcome.CANCELLED if cancel else DrillOutcome.HEALED
    return end.outcome is wanted and not end.is_frozen


def _print(end: "DrillStatus") -> None:
    from fleet.drill_text import MEANING, steps
    from fleet.durations import brief
    from worker.render import console, say, table

    if end.outcome is not None:
        said = f": {end.why}" if end.why else ""
        say(f"{end.server}: {end.outcome}, {MEANING[end.outcome]}{said}")
    if end.is_frozen:
        say(f"{end.server}: its process may be frozen still: let it go on (SIGCONT), or restart it")
    if end.frozen_at is None:
        return
    shown = table("after the freeze", "took", "expected within")
    for step, took, within in steps(end):
        came = brief(took) if took is not None else "-"
        shown.add_row(step, came, brief(within) if within is not None else "")
    console().print(shown)
    if end.incident is not None:
        say(f"its incident: `steady incident show {end.incident}`")
