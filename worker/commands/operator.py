"""``steady cancel``, ``snooze``, ``approve`` and ``restart``: a person's word to a remediation."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.commands.exits import Exit, Stop
from worker.commands.options import AsJson, For, ServerName, Why

if TYPE_CHECKING:
    from temporalio.client import Client

    from fleet.contracts.remediation import (
        Moment,
        OperatorRequest,
        RemediationSignal,
        RemediationStatus,
    )
    from worker.orders import Answer


def cancel(name: ServerName, why: Why = "", as_json: AsJson = False) -> None:
    """End the incident of a server: steady leaves it alone until it has recovered.

    Waits for the effect and says *cancelled*, or *too late, the command was sent* (exit code 1).

    JSON: server, answer, effect (true: it came true), incident, phase, outcome, restarts.
    """
    from fleet.contracts.remediation import RemediationSignal

    _say(name, RemediationSignal.CANCEL, _request(why), as_json)


def snooze(name: ServerName, *, span: For, why: Why = "", as_json: AsJson = False) -> None:
    """Let the open incident of a server wait before it acts.

    `steady snooze gpu-1 --for 30m --why "a long job, let it end"`

    To keep steady's hands off whether or not there is an incident: `steady pause`.

    JSON: as for `steady cancel`.
    """
    from fleet.contracts.remediation import RemediationSignal
    from fleet.durations import parse

    try:
        request = _request(why).model_copy(update={"span": parse(span)})
    except ValueError as problem:
        raise Stop(f"--for: {problem}", Exit.WRONG_INPUT) from problem
    _say(name, RemediationSignal.SNOOZE, request, as_json)


def approve(name: ServerName, why: Why = "", as_json: AsJson = False) -> None:
    """Allow the restart that an incident in mode `approve` waits for.

    JSON: as for `steady cancel`.
    """
    from fleet.contracts.remediation import RemediationSignal

    _say(name, RemediationSignal.APPROVE, _request(why), as_json)


def restart(
    name: ServerName,
    why: Why = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Go on until it is known what came of it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restart a server by hand: the same workflow, the same last look, the same budget.

    Waits until it is accepted or refused (exit code 1). With --wait it goes on until the outcome is
    known, which takes the cooldown at least; the exit code is then 1 unless the server is well.

    JSON: as for `steady cancel`.
    """
    from worker.client import with_temporal
    from worker.orders import is_good

    answer, end = with_temporal(
        lambda client: _order(client, name, _request(why), wait=wait), acts=True
    )
    if as_json:
        _print_json(answer, end)
    else:
        _print(name, answer.text)
        if end is not None:
            _print(name, f"{end.outcome or end.phase}: {end.next_step}")
    if not (is_good(end) if end is not None else answer.effect):
        raise typer.Exit(Exit.NO)


async def _order(
    client: "Client", name: str, request: "OperatorRequest", *, wait: bool
) -> "tuple[Answer, RemediationStatus | None]":
    from worker import orders
    from worker.client import applied, known, settings

    state, fleet = await applied(client)
    known(name, fleet.servers)
    answer = await orders.restart(
        client,
        name,
        request,
        searchable=state.search_attributes,
        task_queue=settings().task_queue,
    )
    end = await _followed(client, name) if wait and answer.effect else None
    return answer, end


async def _followed(client: "Client", name: str) -> "RemediationStatus":
    """Tell each moment of the timeline on standard error, and return the end.

    Raises:
        Stop: nobody waits for it any longer.
    """
    from asyncio import CancelledError

    from worker import orders
    from worker.render import remark

    told: set[Moment] = set()
    try:
        async for status in orders.follow(client, name):
            for moment in status.timeline:
                if moment not in told:
                    remark(f"{moment.at:%H:%M:%S} {moment.text}")
            told.update(status.timeline)
            if orders.is_over(status):
                return status
    except CancelledError:
        raise Stop(
            "not waited for: the restart was accepted and goes on;"
            f" `steady incident show {name}` shows what comes of it"
        ) from None
    raise AssertionError("it is followed until it is over")


def _say(name: str, signal: "RemediationSignal", request: "OperatorRequest", as_json: bool) -> None:
    from worker import orders
    from worker.client import applied, known, with_temporal

    async def tell(client: "Client") -> "Answer":
        known(name, (await applied(client))[1].servers)
        return await orders.tell(client, name, signal, request)

    answer = with_temporal(tell, acts=True)
    if as_json:
        _print_json(answer, None)
    else:
        _print(name, answer.text)
    if not answer.effect:
        raise typer.Exit(Exit.NO)


def _request(why: str) -> "OperatorRequest":
    from uuid import uuid4

    from fleet.contracts.remediation import OperatorRequest
    from worker.client import whoami

    return OperatorRequest(who=whoami(), why=why[:300], id=str(uuid4()))


def _print(name: str, text: str) -> None:
    from worker.render import say

    say(f"{name}: {text}")


def _print_json(answer: "Answer", end: "RemediationStatus | None") -> None:
    from worker.render import as_json

    status = end or answer.status
    document: dict[str, Any] = {"answer": answer.text, "effect": answer.effect}
    for key in ("server", "incident", "phase", "outcome", "restarts"):
        document[key] = getattr(status, key)
    as_json(document)
