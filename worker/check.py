"""``steady check``, from what was typed to its exit code."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from worker import check_arguments
from worker.commands.exits import Exit, Stop

if TYPE_CHECKING:
    from datetime import timedelta

    from fleet.engines.place import EnginePlace
    from fleet.patience import Patience
    from worker.check_report import Report

#: What a shell makes of a program that Ctrl-C ended.
_INTERRUPTED = 130


def run(arguments: Sequence[str]) -> int:
    """
    Raises:
        Stop: what was typed is no good.
        SystemExit: help was asked for, and shown.
    """
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    typed = check_arguments.parse(arguments)
    if typed.watch and (typed.json or typed.liveness):
        raise Stop(
            "--watch only shows, and ends with Ctrl-C: leave out --json and --liveness",
            Exit.WRONG_INPUT,
        )
    from worker import check_options  # noqa: PLC0415 - help needs none of it

    given = {
        "kind": typed.engine,
        "metrics_url": typed.metrics_url,
        "socket": typed.socket,
        "ca": typed.ca,
        "balancer": typed.balancer,
        "api_key": typed.api_key_env,
        "timeout": typed.timeout,
        "model": typed.model,
        "request": typed.request,
        "deadline": typed.deadline,
        "named_ranks": typed.named_ranks,
    }
    source = check_options.source(typed.url, given)
    policy = check_options.policy(typed.wait, typed.load_limit)
    limit = check_options.limit(typed.within, source, policy)
    if typed.watch:
        _watch(source, policy)
        return Exit.DONE
    try:
        report = _checked(source, policy, limit, ask=not typed.no_ask)
    finally:
        _tell("")
    _say(report, as_json=typed.json)
    return _code(report, liveness=typed.liveness)


def _checked(
    source: "EnginePlace", policy: "Patience", limit: "timedelta | None", *, ask: bool
) -> "Report":
    import asyncio  # noqa: PLC0415

    from worker.checking import Checker  # noqa: PLC0415

    return asyncio.run(Checker(source, policy, _tell, ask=ask).run(limit))


def _watch(source: "EnginePlace", policy: "Patience") -> None:
    import asyncio  # noqa: PLC0415

    from worker.check_watch import watch  # noqa: PLC0415 - loads what draws it

    asyncio.run(watch(source, policy))


def _say(report: "Report", *, as_json: bool) -> None:
    import json  # noqa: PLC0415

    said = json.dumps(report.document(), ensure_ascii=False) if as_json else report.line()
    sys.stdout.write(f"{said}\n")


def _code(report: "Report", *, liveness: bool) -> Exit:
    from worker.check_report import exit_of  # noqa: PLC0415

    return exit_of(report.verdict, liveness=liveness)


def _tell(line: str) -> None:
    """What is waited for, for somebody who waits; a health check's log has no use for it.

    One line that the next one takes the place of, and none at the end.
    """
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
