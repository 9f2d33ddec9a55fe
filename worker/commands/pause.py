"""``steady pause`` and ``resume``."""

from typing import TYPE_CHECKING, Annotated

import typer

from worker.commands.exits import Exit, Stop
from worker.commands.options import AsJson, For, Why

if TYPE_CHECKING:
    from temporalio.client import Client

    from fleet.contracts.fleet import FleetState, Pause, PauseRequest

_Target = Annotated[
    str | None, typer.Argument(metavar="NAME", help="A server. Without it the whole fleet.")
]


def pause(name: _Target = None, *, span: For, why: Why = "", as_json: AsJson = False) -> None:
    """Restart nothing until then, however it looks: one server, or the whole fleet.

    Servers are still watched, and what needs a person is still told. A pause ends by itself.

    `steady pause gpu-1 --for 2h --why "new driver"`

    JSON: server (null: the fleet), until, who, why.
    """
    from fleet.contracts.fleet import PauseRequest
    from fleet.durations import parse
    from worker.client import whoami
    from worker.render import as_json as print_json
    from worker.render import say

    try:
        until = parse(span)
    except ValueError as problem:
        raise Stop(f"--for: {problem}", Exit.WRONG_INPUT) from problem
    _, paused = _ask(PauseRequest(server=name, span=until, who=whoami(), why=why))
    if as_json:
        print_json({"server": name, **(paused.model_dump(mode="json") if paused else {})})
    elif paused is not None:
        say(f"{_what(name)} is paused until {paused.until:%Y-%m-%d %H:%M:%S} UTC")


def resume(name: _Target = None, why: Why = "", as_json: AsJson = False) -> None:
    """End a pause: of one server, or of the whole fleet.

    A pause of the fleet and one of a server are two things; each is ended by itself.

    JSON: server (null: the fleet), was_paused, fleet_paused (still, or not).
    """
    from datetime import UTC, datetime

    from fleet.contracts.fleet import PauseRequest
    from worker.client import whoami
    from worker.render import as_json as print_json
    from worker.render import remark, say

    state, _ = _ask(PauseRequest(server=name, who=whoami(), why=why))
    before = state.fleet_pause if name is None else state.pauses.get(name)
    was, fleet_is = (
        pause is not None and pause.until > datetime.now(UTC)
        for pause in (before, state.fleet_pause if name is not None else None)
    )
    if as_json:
        print_json({"server": name, "was_paused": was, "fleet_paused": fleet_is})
        return
    say(f"{_what(name)}: {'its pause is ended' if was else 'was not paused'}")
    if fleet_is:
        remark("the whole fleet is still paused: `steady resume` ends that")


def _what(name: str | None) -> str:
    return "the whole fleet" if name is None else name


def _ask(request: "PauseRequest") -> "tuple[FleetState, Pause | None]":
    """The state before, and the pause that is in force now."""
    from worker.client import applied, known, update, with_temporal

    async def ask(client: "Client") -> "tuple[FleetState, Pause | None]":
        from fleet.contracts.fleet import FleetUpdate, Pause

        state, fleet = await applied(client)
        if request.server is not None:
            known(request.server, fleet.servers)
        answer = await update(client, FleetUpdate.PAUSE, request)
        return state, Pause.model_validate(answer) if answer is not None else None

    return with_temporal(ask, acts=True)
