"""``steady check``."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from worker.commands.exits import Exit, Stop
from worker.commands.options import AsJson

if TYPE_CHECKING:
    from datetime import timedelta

    from fleet.engine_sources import EngineSource
    from fleet.policy import Policy
    from worker.check_report import Report

#: What a shell makes of a program that Ctrl-C ended.
_INTERRUPTED = 130

_READING, _ASKING, _ANSWER = "How it is reached", "Patience", "What comes out"


def check(  # noqa: PLR0913 - each is an option of the command
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="The engine's base URL, like http://127.0.0.1:8000."),
    ],
    *,
    engine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which engine it is.", rich_help_panel=_READING),
    ] = None,
    metrics_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Its metrics, where they are not under its base URL.",
            rich_help_panel=_READING,
        ),
    ] = None,
    socket: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="The Unix socket at which it listens.", rich_help_panel=_READING
        ),
    ] = None,
    ca: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The certificates that vouch for its own.",
            rich_help_panel=_READING,
        ),
    ] = None,
    balancer: Annotated[
        bool,
        typer.Option(
            "--balancer",
            help="It is a load balancer: only its list of models is read.",
            rich_help_panel=_READING,
        ),
    ] = False,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            metavar="VAR",
            help="The environment variable that holds its API key.",
            rich_help_panel=_READING,
        ),
    ] = None,
    timeout: Annotated[
        str,
        typer.Option(metavar="DURATION", help="For one page.", rich_help_panel=_READING),
    ] = "5s",
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model that is asked; without it the first that it serves.",
            rich_help_panel=_ASKING,
        ),
    ] = None,
    request: Annotated[
        str,
        typer.Option(
            metavar="KIND", help="What the short request looks like.", rich_help_panel=_ASKING
        ),
    ] = "completion",
    wait: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Between two readings.", rich_help_panel=_ASKING),
    ] = "5s",
    deadline: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="For the answer to the request: longer than its longest step.",
            rich_help_panel=_ASKING,
        ),
    ] = "60s",
    within: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="For all of it; what is not known by then is unproven.",
            rich_help_panel=_ASKING,
        ),
    ] = None,
    load_limit: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="How long it may load, where it says since when it does.",
            rich_help_panel=_ASKING,
        ),
    ] = "15m",
    no_ask: Annotated[
        bool,
        typer.Option("--no-ask", help="Never send it a request.", rich_help_panel=_ASKING),
    ] = False,
    liveness: Annotated[
        bool,
        typer.Option(
            "--liveness",
            help="Exit 1 only for what is proved stuck, else 0: for what restarts on a failure.",
            rich_help_panel=_ANSWER,
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Show the counters live, until Ctrl-C; nothing is asked.",
            rich_help_panel=_ANSWER,
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tell whether one engine works, without adding to its load. No Temporal, no fleet file.

    It reads the engine's own counters, waits, and reads again. Only where nothing of them moved it
    sends one short request, and reads on meanwhile. One line says the verdict, why, and what was
    sent; `steady check http://127.0.0.1:8000`.

    **Exit codes**: 0 healthy, busy, idle, asleep, or loading within its limit; 1 stuck,
    unresponsive, or dead by its own word; 2 wrong usage; 3 nothing is proved (not reached,
    unreadable, unproven, degraded, loading past its limit). With `--liveness` 1 and 2 are as
    before, and all others are 0.

    JSON: verdict, why, engine, engines (each with label, running, waiting, steps, asleep,
    witnesses, moved), requests_sent, readings, seconds.
    """
    from worker import check_options

    if watch and (as_json or liveness):
        raise Stop(
            "--watch only shows, and ends with Ctrl-C: leave out --json and --liveness",
            Exit.WRONG_INPUT,
        )
    given = {
        "kind": engine,
        "metrics_url": metrics_url,
        "socket": socket,
        "ca": ca,
        "balancer": balancer,
        "api_key": api_key_env,
        "timeout": timeout,
        "model": model,
        "request": request,
        "deadline": deadline,
    }
    source, policy = check_options.source(url, given), check_options.policy(wait, load_limit)
    limit = check_options.limit(within, source, policy)
    try:
        if watch:
            _watch(source, policy)
        else:
            try:
                report = _checked(source, policy, limit, ask=not no_ask)
            finally:
                _tell("")
            _say(report, as_json=as_json)
            raise typer.Exit(_code(report, liveness=liveness))
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


def _checked(
    source: "EngineSource", policy: "Policy", limit: "timedelta | None", *, ask: bool
) -> "Report":
    import asyncio

    from worker.checking import Checker

    return asyncio.run(Checker(source, policy, _tell, ask=ask).run(limit))


def _watch(source: "EngineSource", policy: "Policy") -> None:
    import asyncio

    from worker.check_watch import watch

    asyncio.run(watch(source, policy))


def _say(report: "Report", *, as_json: bool) -> None:
    import json

    said = json.dumps(report.document(), ensure_ascii=False) if as_json else report.line()
    sys.stdout.write(f"{said}\n")


def _code(report: "Report", *, liveness: bool) -> Exit:
    from worker.check_report import exit_of

    return exit_of(report.verdict, liveness=liveness)


def _tell(line: str) -> None:
    """What is waited for, for somebody who waits; a health check's log has no use for it.

    One line that the next one takes the place of, and none at the end.
    """
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
