"""``steady incident show``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.commands.exits import Exit, Stop
from worker.commands.options import AsJson

if TYPE_CHECKING:
    from worker.incident import Story

app = typer.Typer(
    help="Look at one incident: `steady incident show ID`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.callback()
def _incident() -> None: ...


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="An incident; or a server, or a workflow's ID: its latest incident."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Tell the story of one incident: what was seen, decided, done and told, and what came of it.

    It works for open and closed ones, also where no worker runs; of an open one the newest words
    are then missing. Times in the story count from the first observation.

    `steady incident show gpu-1`

    JSON: incident, server, workflow_id, runs (Temporal's run IDs), phase, verdict, outcome (null:
    open), meaning, job, since, detected_at, restarted_at, recovered_at, closed_at, restarts,
    next_step, next_at; timeline (at, text); commands, restarts that were sent (at, effect, detail);
    budget (at, word: taken, refused or given back, left, why); evidence (at, path, size, missing,
    kept_on, faults, place: here, elsewhere or expired); alerts (cause, workflow_id, at, severity,
    title, verdict, since, job, delivered, where null is on its way, detail); complete (false: no
    worker answers for an open one); link, into the Temporal UI (null: its address is not known).
    """
    from worker.client import with_temporal
    from worker.evidence import place
    from worker.incident_text import lines
    from worker.render import as_json as print_json
    from worker.render import say

    story, link = with_temporal(lambda client: _find(client, name))
    if as_json:
        shown = story.model_dump(mode="json")
        for saved, each in zip(story.evidence, shown["evidence"], strict=True):
            each["place"] = place(saved)
        print_json({**shown, "link": link})
        return
    for line in lines(story, link):
        say(line)


async def _find(client: Any, name: str) -> "tuple[Story, str | None]":
    from fleet.webhooks import workflow_link
    from worker.incident import UnknownError, find
    from worker.ui import temporal_ui

    try:
        story = await find(client, name)
    except UnknownError as unknown:
        raise Stop(_unknown(name, unknown.instead), Exit.NO) from None
    ui = await temporal_ui(client)
    run = story.runs[-1] if story.runs else ""
    return story, workflow_link(ui, client.namespace, story.workflow_id, run)


def _unknown(name: str, instead: tuple[str, ...]) -> str:
    hint = f"did you mean {', '.join(instead)}?" if instead else "`steady incidents` lists them"
    return f"there is no incident {name!r}: {hint}"
