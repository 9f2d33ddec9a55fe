"""The command line. What a command needs is imported when it runs, so that ``--help`` is quick."""

from worker.commands import (
    apply,
    audit,
    budget,
    check,
    drill,
    gateway,
    incident,
    incidents,
    init,
    operator,
    pause,
    replay,
    scan,
    serve,
    status,
    storm,
    validate,
)
from worker.entry import main
from worker.group import new_app

__all__ = ["app", "main"]

app = new_app()

_RUN, _FLEET, _LOOK, _ACT = "Run", "The fleet file", "Look", "Say a word"

app.command("up", rich_help_panel=_RUN)(serve.up)
app.command("worker", rich_help_panel=_RUN)(serve.worker)
app.add_typer(gateway.app, name="gateway", rich_help_panel=_RUN)
app.command("demo", rich_help_panel=_RUN)(serve.demo)
app.command("init", rich_help_panel=_FLEET)(init.init)
app.command("validate", rich_help_panel=_FLEET)(validate.validate)
app.command("apply", rich_help_panel=_FLEET)(apply.apply)
app.command("audit", rich_help_panel=_FLEET)(audit.audit)
app.command("ssh-scan", rich_help_panel=_FLEET)(scan.ssh_scan)
app.command("check", rich_help_panel=_LOOK, context_settings=check.UNREAD, add_help_option=False)(
    check.check
)
app.command("status", rich_help_panel=_LOOK)(status.status)
app.command("incidents", rich_help_panel=_LOOK)(incidents.incidents)
app.command("replay", rich_help_panel=_LOOK)(replay.replay)
app.add_typer(incident.app, name="incident", rich_help_panel=_LOOK)
app.command("storm", rich_help_panel=_LOOK)(storm.storm)
app.command("cancel", rich_help_panel=_ACT)(operator.cancel)
app.command("snooze", rich_help_panel=_ACT)(operator.snooze)
app.command("approve", rich_help_panel=_ACT)(operator.approve)
app.command("restart", rich_help_panel=_ACT)(operator.restart)
app.command("drill", rich_help_panel=_ACT)(drill.drill)
app.add_typer(budget.app, name="budget", rich_help_panel=_ACT)
app.command("pause", rich_help_panel=_ACT)(pause.pause)
app.command("resume", rich_help_panel=_ACT)(pause.resume)
