"""``steady gateway``: the gateway itself, and orders to the one that runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.commands.options import AsJson, For, ServerName, Why

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from worker.gateway_orders import Answered, GatewayOrders

app = typer.Typer(
    help="The gateway: `steady gateway` serves; `status`, `drain`, `undrain`, `sample`, `weight`.",
    rich_markup_mode="markdown",
)

_File = Annotated[
    Path, typer.Option("--file", metavar="FILE", help="The fleet file with the endpoints.")
]
_DEFAULT = Path("fleet.toml")


@app.callback(invoke_without_command=True)
def gateway(context: typer.Context, file: _File = _DEFAULT) -> None:
    """Serve the endpoints of a fleet file, until it is told to stop.

    A reverse proxy for OpenAI-compatible servers, at `listen` of [gateway]. It needs no Temporal.
    /health and /metrics are at `admin`. Told to stop, it finishes what is in flight.

    The commands below give orders to the gateways of a fleet file that run, at `admin_urls` or
    `admin`, with their `admin_token`.
    """
    if context.invoked_subcommand is not None:
        context.obj = file
        return
    from worker.client import settings
    from worker.gateway import run_gateway

    raise typer.Exit(run_gateway(file, settings()))


@app.command()
def status(context: typer.Context, as_json: AsJson = False) -> None:
    """Show backends with their leases and requests in flight, and the samples of candidates.

    JSON: gateways, each with url, and backends and endpoints as GET /state of the admin API has
    them: docs/gateway.md.
    """
    from worker.gateway_orders import lines

    answered = _orders(context).state()
    _show(answered, as_json=as_json)
    if not as_json:
        _say([line for each in answered for line in lines(each)])


@app.command()
def drain(
    context: typer.Context, name: ServerName, *, span: For, why: Why = "", as_json: AsJson = False
) -> None:
    """Send a backend no new requests, until then or until `steady gateway undrain`.

    What it has in flight goes on. Said again, it is renewed, to a later end or an earlier.

    `steady gateway --file fleet.toml drain gpu-1 --for 1h --why "new driver"`

    JSON: gateways, each with url, id, holder, until, why, last_resort.
    """
    from fleet.durations import parse
    from worker.client import whoami
    from worker.commands.exits import Exit, Stop
    from worker.gateway_orders import in_words

    try:
        lasting = parse(span)
    except ValueError as problem:
        raise Stop(f"--for: {problem}", Exit.WRONG_INPUT) from problem
    answered = _orders(context).drain(name, whoami(), lasting, why)
    _show(answered, as_json=as_json)
    if not as_json:
        _done(answered, lambda said: f"{name} is drained until {in_words(said['until'])}")


@app.command()
def undrain(
    context: typer.Context,
    name: ServerName,
    everybody: Annotated[
        bool, typer.Option("--all", help="Release the leases of others too, like steady's own.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Release what `steady gateway drain` holds of a backend; other leases hold on.

    JSON: gateways, each with url, in_flight, drained_until (null: it is sent requests), leases.
    """
    from worker.gateway_orders import drained

    answered = _orders(context).undrain(name, everybody=everybody)
    _show(answered, as_json=as_json)
    if not as_json:
        _done(answered, lambda said: f"{name} {drained(said)}")


@app.command()
def sample(
    context: typer.Context,
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help="A candidate's name.")],
    percent: Annotated[float, typer.Argument(metavar="PERCENT", min=0, max=100)],
    as_json: AsJson = False,
) -> None:
    """Send a candidate another share of the requests, until the fleet file says another one.

    JSON: gateways, each with url, path, weights, candidates.
    """
    answered = _orders(context).sample(candidate, percent)
    _show(answered, as_json=as_json)
    if not as_json:
        _done(answered, lambda _: f"{candidate} is sent {percent:g} %")


@app.command()
def weight(
    context: typer.Context,
    name: ServerName,
    value: Annotated[float, typer.Argument(metavar="WEIGHT", min=0.01, max=100)],
    as_json: AsJson = False,
) -> None:
    """Give a backend another weight in each of its endpoints, until the fleet file says another.

    JSON: gateways, each with url, path, weights, candidates.
    """
    answered = _orders(context).weigh(name, value)
    _show(answered, as_json=as_json)
    if not as_json:
        _done(answered, lambda _: f"{name} has the weight {value:g}")


def _orders(context: typer.Context) -> "GatewayOrders":
    from worker.gateway_orders import GatewayOrders
    from worker.loading import load

    file = context.obj or _DEFAULT
    return GatewayOrders(load(file, files_are_here=False))


def _show(answered: "list[Answered]", *, as_json: bool) -> None:
    from worker.render import as_json as print_json

    if as_json:
        print_json({"gateways": [{"url": each.url, **each.said} for each in answered]})


def _done(answered: "list[Answered]", what: "Callable[[dict[str, Any]], str]") -> None:
    """A line for each gateway, and one for each of its processes that begins with it later."""
    for each in answered:
        waiting = each.said.get("waiting", [])
        _say([f"{each.name}: {line}" for line in (what(each.said), *waiting)])


def _say(lines: list[str]) -> None:
    from worker.render import say

    for line in lines:
        say(line)
