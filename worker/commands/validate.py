"""``steady validate``."""

import typer

from worker.commands.exits import Exit
from worker.commands.options import AsJson, FleetFile, RemoteWorker


def validate(file: FleetFile, remote_worker: RemoteWorker = False, as_json: AsJson = False) -> None:
    """Check a fleet file. Nothing is started, and nothing outside this machine is asked.

    Every mistake is one line on standard error: file, key, what is wrong, and what to do. Warnings
    forbid nothing. With mistakes the exit code is 2.

    JSON: ok; servers, hosts and stores (numbers); problems and warnings, each with file, line,
    key, message, remedy.
    """
    from dataclasses import asdict

    from fleet.details import many
    from worker.loading import examine
    from worker.render import as_json as print_json
    from worker.render import remark, say

    examined = examine(file, files_are_here=not remote_worker)
    fleet = examined.fleet
    counts = {
        name: len(getattr(fleet, name)) if fleet is not None else None
        for name in ("servers", "hosts", "stores")
    }
    if as_json:
        problems = [asdict(each) for each in examined.problems]
        warnings = [asdict(each) for each in examined.warnings]
        ok = fleet is not None
        print_json({"ok": ok, **counts, "problems": problems, "warnings": warnings})
    else:
        for problem in examined.problems:
            remark(str(problem))
        for warning in examined.warnings:
            remark(f"warning: {warning}")
        if fleet is not None:
            some = {name.removesuffix("s"): count for name, count in counts.items() if count}
            said = ", ".join(many(count, name) for name, count in some.items())
            say(f"{file} is good: {said}")
    if fleet is None:
        raise typer.Exit(Exit.WRONG_INPUT)
