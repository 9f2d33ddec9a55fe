"""What may be typed after ``steady check``. Typer and all that it shows itself with would take as
long to load as a check's own code, so this one command is read by the standard library.
"""

import argparse
import functools
from collections.abc import Callable, Sequence
from typing import NoReturn

from worker.commands.exits import Exit, Stop

SUMMARY = "Tell whether one engine works, without adding to its load. No Temporal, no fleet file."

_MORE = """
It reads the engine's own counters, waits, and reads again. Only where none of them moved it sends
one short request, and reads on meanwhile. One line says the verdict, why, and what was sent:
steady check http://127.0.0.1:8000"""
_ENDING = """\
Exit codes: 0 healthy, busy, idle, asleep, or loading within its limit; 1 stuck, unresponsive, or
dead by its own word; 2 wrong usage; 3 nothing is proved (not reached, unreadable, unproven,
degraded, loading past its limit). With --liveness 1 and 2 are as before, and all others are 0.

JSON: verdict, why, engine, engines (each with label, running, waiting, steps, asleep, witnesses,
moved), requests_sent, readings, seconds."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Stop(f"{message}: `steady check --help` shows what may be written", Exit.WRONG_INPUT)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """
    Raises:
        Stop: it is not understood.
        SystemExit: help was asked for, and shown.
    """
    parser = _Parser(
        prog="steady check",
        description=f"{SUMMARY}\n{_MORE}",
        epilog=_ENDING,
        formatter_class=_help(is_wanted=not {"-h", "--help"}.isdisjoint(arguments)),
        allow_abbrev=False,
    )
    parser.add_argument(
        "url", metavar="URL", help="the engine's base URL, like http://127.0.0.1:8000"
    )
    _reaching(parser.add_argument_group("how it is reached"))
    _patience(parser.add_argument_group("what is asked, and patience"))
    _answer(parser.add_argument_group("what comes out"))
    return parser.parse_args(arguments)


def _help(*, is_wanted: bool) -> Callable[..., argparse.HelpFormatter]:
    """Told a width, it doesn't load what asks the terminal."""
    shape = argparse.RawDescriptionHelpFormatter
    return shape if is_wanted else functools.partial(shape, width=80)


def _reaching(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--engine", metavar="NAME", help="which engine it is; else recognised")
    group.add_argument(
        "--metrics-url", metavar="URL", help="its metrics, where they are not under its base URL"
    )
    group.add_argument("--socket", metavar="PATH", help="the Unix socket at which it listens")
    group.add_argument("--ca", metavar="FILE", help="the certificates that vouch for its own")
    group.add_argument(
        "--balancer",
        action="store_true",
        help="it is a load balancer: only its list of models is read",
    )
    group.add_argument(
        "--api-key-env", metavar="VAR", help="the environment variable that holds its API key"
    )
    _duration(group, "--timeout", "5s", "for one page")


def _patience(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model", metavar="NAME", help="the model that is asked; else the first that it serves"
    )
    group.add_argument(
        "--request",
        metavar="KIND",
        default="completion",
        help="what the short request is: completion (the default), chat, embedding or rerank, or"
        ' one of your own, as a fleet file has it: { path = "/v1/score", body = { text = "Hi" } }',
    )
    group.add_argument(
        "--named-ranks",
        action=argparse.BooleanOptionalAction,
        help="whether a request reaches the rank that it names; else its page tells",
    )
    _duration(group, "--wait", "5s", "between two readings")
    _duration(
        group, "--deadline", "60s", "for the answer to the request: longer than its longest step"
    )
    group.add_argument(
        "--within", metavar="DURATION", help="for all of it; what is not known by then is unproven"
    )
    _duration(
        group, "--load-limit", "15m", "how long it may load, where it says since when it does"
    )
    group.add_argument("--no-ask", action="store_true", help="never send it a request")


def _answer(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--liveness",
        action="store_true",
        help="exit 1 only for what is proved stuck, else 0: for what restarts on a failure",
    )
    group.add_argument(
        "--watch",
        action="store_true",
        help="show the counters live, until Ctrl-C; nothing is asked",
    )
    group.add_argument("--json", action="store_true", help="one JSON object, for programs")


def _duration(group: argparse._ArgumentGroup, flag: str, default: str, what: str) -> None:
    group.add_argument(
        flag, metavar="DURATION", default=default, help=f"{what} (%(default)s by default)"
    )
