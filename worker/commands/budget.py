"""``steady budget``: the restart budget of a server and of its machine, for people and scripts."""

from typing import TYPE_CHECKING, Annotated

import typer

from worker.commands.exits import Exit, Stop
from worker.commands.options import AsJson, ServerName

if TYPE_CHECKING:
    from temporalio.client import Client

    from worker.budget import Budgets, Counter, Taken

app = typer.Typer(
    help="The restart budget: `steady budget show`, `take` and `reset`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_Why = Annotated[str, typer.Option("--why", help="The reason; kept in the ledger.")]


@app.callback()
def _budget() -> None: ...


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One server, with its ledgers. Without it all."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is left of each budget; with a name, who took what, and when the next is free.

    JSON: servers, each with server, machine (null: it has no guard yet), own and host (null: no
    machine, or no guard yet), each of those with limit, span, used, left, next_at, lost_at,
    cooldown_until (own only), takes (key, at, by, why, incident, server, counts) and resets (at,
    who, why).
    """
    from worker import budget
    from worker.client import with_temporal
    from worker.render import as_json as print_json
    from worker.render import say

    found = with_temporal(lambda client: _read(client, name))
    if as_json:
        print_json({"servers": [each.model_dump(mode="json") for each in found]})
        return
    for each in found:
        for line in budget.lines(each) if name is not None else [budget.summary(each)]:
            say(line)


@app.command()
def take(
    name: ServerName,
    *,
    by: Annotated[str, typer.Option("--by", help="Who restarts it: the name of your script.")],
    why: _Why,
    key: Annotated[
        str,
        typer.Option("--key", help="Names this one restart: asked again, it counts once."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Take one restart out of the budget, before another script restarts the server itself.

    `steady budget take gpu-1 --by deploy --why "new image" && docker restart vllm`

    Exit code 0: granted, and the cooldown begins. 1: refused, and why; then don't restart it.
    Refused where a budget is used up, while a restart cools down or steady itself is restarting the
    server, and while it is paused: there is one arbiter for each server.

    JSON: server, granted, left, why, next_at, refused_by (server, host, cooldown, pause,
    remediation; null: granted).
    """
    from worker.client import with_temporal
    from worker.render import as_json as print_json
    from worker.render import say

    if not by.strip() or not why.strip():
        raise Stop("--by and --why: say who restarts it and why", Exit.WRONG_INPUT)
    if len(key) > 200:
        raise Stop("--key: at most 200 characters", Exit.WRONG_INPUT)
    taken = with_temporal(lambda client: _take(client, name, by.strip(), why, key), acts=True)
    if as_json:
        print_json({"server": name, **taken.model_dump(mode="json")})
    else:
        say(f"{name}: {taken.line}")
    if not taken.granted:
        raise typer.Exit(Exit.NO)


@app.command()
def reset(
    name: ServerName,
    *,
    why: _Why,
    host: Annotated[
        bool, typer.Option("--host", help="The ledger of its machine, not the server's own.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let what was used up or lost count no longer: the budget is full again. A person's decision.

    What was taken stays in the ledger, with who reset it and why. A cooldown goes on.

    JSON: server, machine (null: the server's own ledger), who, why.
    """
    from worker.client import whoami, with_temporal
    from worker.render import as_json as print_json
    from worker.render import say

    if not why.strip():
        raise Stop("--why: say why the budget may be used again", Exit.WRONG_INPUT)
    what = f"the budget of {'the machine of ' if host else ''}{name}"
    if not yes and not typer.confirm(f"Fill {what} up again?", err=True):
        raise Stop("nothing was changed")
    machine = with_temporal(lambda client: _reset(client, name, why, host=host), acts=True)
    if as_json:
        print_json({"server": name, "machine": machine, "who": whoami(), "why": why})
    else:
        say(f"{what} is full again")


async def _read(client: "Client", name: str | None) -> "list[Budgets]":
    counter, servers = await _counter(client, name)
    return await counter.read(servers)


async def _take(client: "Client", name: str, by: str, why: str, key: str) -> "Taken":
    counter, _ = await _counter(client, name)
    return await counter.take(name, by, why, key)


async def _reset(client: "Client", name: str, why: str, *, host: bool) -> str | None:
    from worker.client import whoami

    counter, _ = await _counter(client, name)
    return await counter.reset(name, whoami(), why, host=host)


async def _counter(client: "Client", name: str | None) -> "tuple[Counter, list[str]]":
    from worker.budget import Counter
    from worker.client import applied, known, settings

    state, fleet = await applied(client)
    names = sorted(fleet.servers) if name is None else [known(name, fleet.servers)]
    return Counter(client, state, settings().task_queue), names
