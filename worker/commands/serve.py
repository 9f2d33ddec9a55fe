"""``steady up``, ``worker`` and ``demo``: the processes."""

from pathlib import Path
from typing import Annotated

import typer

from worker.commands.options import AsJson


def up(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="The fleet file. Without it fleet.toml; without that a demo."
        ),
    ] = None,
) -> None:
    """Start everything and show it live, until Ctrl-C.

    A Temporal server with its UI, a Valkey where the fleet needs one, the worker and the health
    schedules, all on 127.0.0.1. Its state stays in `.steady` (STEADY_STATE_DIR): the next run goes
    on where this one stopped. A change of the fleet file is applied while it runs.
    """
    from worker import up as process
    from worker.client import settings

    raise typer.Exit(process.up(file, settings()))


def worker(
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /health and /metrics there, like 127.0.0.1:9464 (STEADY_LISTEN).",
        ),
    ] = None,
) -> None:
    """Run a worker alone, against a Temporal server of your own, until it is told to stop.

    It needs Temporal's address (TEMPORAL_ADDRESS), and the key files and secrets that the fleet
    names. Run as many as you like. Settings are STEADY_* variables: STEADY_STATE_DIR (where
    evidence is kept), STEADY_EVIDENCE_KEEP (30d) and STEADY_EVIDENCE_SIZE (2GiB), which end it,
    STEADY_TASK_QUEUE, STEADY_GRACEFUL_SHUTDOWN, STEADY_CONNECT_WITHIN, STEADY_LISTEN,
    STEADY_LOG_LEVEL, STEADY_LOG_FORMAT (console or json).

    /health answers 200 while work flows, else 503, with what is wrong. /metrics is for Prometheus.
    """
    from worker.client import settings
    from worker.worker import run_worker

    given = {"listen": listen} if listen is not None else {}
    raise typer.Exit(run_worker(settings(**given)))


def demo(as_json: AsJson = False) -> None:
    """Play the demonstration to its end, in under a minute; 0 only if the story came true.

    Four simulated workers: one is healthy, one freezes and is restarted once, one recovers by
    itself, one does not come back from its restart. Nothing outside a temporary folder is touched.

    JSON: servers, each with server, verdict, detect_s, restarts, pages, outcome.
    """
    from worker import demo as process

    raise typer.Exit(process.demo(as_json))
