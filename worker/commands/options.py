"""Arguments and options that several commands share. Imports nothing heavy: it is always loaded."""

from pathlib import Path
from typing import Annotated

import typer

FleetFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The fleet file, such as fleet.toml.")
]
ServerName = Annotated[
    str, typer.Argument(metavar="NAME", help="A server, as [servers.NAME] has it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")]
Why = Annotated[str, typer.Option("--why", help="The reason; kept in the timeline.")]
For = Annotated[
    str, typer.Option("--for", metavar="DURATION", help='For how long, like "30m" or "2h".')
]
RemoteWorker = Annotated[
    bool,
    typer.Option(
        "--remote-worker",
        help="The worker runs on another machine: don't look for its key and secret files here.",
    ),
]
