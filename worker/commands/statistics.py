"""The numbers of ``steady incidents --since``."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from worker.commands.exits import Exit, Stop

if TYPE_CHECKING:
    from temporalio.client import Client

    from fleet.statistics import By, Row


def begin(since: str) -> datetime:
    """The moment so long ago.

    Raises:
        Stop: it is no duration.
    """
    from fleet.durations import parse

    try:
        return datetime.now(UTC) - parse(since)
    except ValueError as problem:
        raise Stop(f"--since: {problem}", Exit.WRONG_INPUT) from problem


async def counted(
    client: "Client", since: datetime, by: "By | None", *, server: str | None
) -> "tuple[list[Row], list[str]]":
    from fleet.statistics import cases, rows
    from worker.span import runs_since

    runs, problems = await runs_since(client, since)
    found = [case for case in cases(runs, since) if server in (None, case.server)]
    return rows(found, by), problems


def table(rows: "Sequence[Row]", by: "By | None") -> Any:
    from worker import render

    shown = render.table(
        *(by or "", "incidents", "open", "to detect", "to restart", "to recover", "restarts"),
        "outcomes",
    )
    for row in rows:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in row.outcomes.items())
        spans = map(_span, (row.detect_s, row.restart_s, row.recover_s))
        counts = (str(row.count), str(row.open))
        shown.add_row(row.group, *counts, *spans, str(row.restarts), outcomes or "-")
    return shown


def _span(seconds: float | None) -> str:
    from fleet.durations import brief

    return brief(timedelta(seconds=seconds)) if seconds is not None else "-"
