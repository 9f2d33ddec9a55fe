"""The few words of a container engine's command line that a host is asked for."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simulator.engine import Container, Engine, NoSuchContainerError

_FIELD = re.compile(r"{{\s*(?P<json>json\s+)?(?P<path>(?:\.\w+)+|\.)\s*}}")
_FLAGS = frozenset({"--timestamps", "--all", "--no-trunc", "--quiet"})
_DEFAULT_STOP_TIMEOUT = 10.0


@dataclass(frozen=True)
class Answer:
    out: str = ""
    err: str = ""
    status: int = 0


async def run_docker(engine: Engine, argv: Sequence[str]) -> Answer:
    """Carry out ``docker VERB …``; what the engine does not know is refused as Docker does."""
    verb, options, names = _split(argv[1:])
    try:
        containers = [engine.container(name) for name in names]
    except NoSuchContainerError as unknown:
        return Answer(err=f"Error response from daemon: No such container: {unknown}\n", status=1)
    match verb:
        case "inspect":
            return _inspect(containers, options.get("--format"))
        case "restart" | "stop" | "kill":
            return await _change(engine, verb, containers, options)
        case "logs" | "top":
            return _logs(containers, options) if verb == "logs" else _top(containers)
        case "ps":
            return _ps(engine.containers, quiet="--quiet" in options)
    return Answer(err=f"docker: unknown command: docker {verb}\n", status=125)


def _split(words: Sequence[str]) -> tuple[str, dict[str, str], list[str]]:
    """Verb, options and names; every option that is not among ``_FLAGS`` has a value."""
    options: dict[str, str] = {}
    names: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            names.append(word)
        elif equals or option in _FLAGS:
            options[option] = value
        else:
            options[option] = next(rest, "")
    return (words[0] if words else ""), options, names


def _inspect(containers: Sequence[Container], template: str | None) -> Answer:
    shown = [_described(container) for container in containers]
    if template is None:
        return Answer(json.dumps(shown, indent=4) + "\n")
    return Answer("".join(f"{_rendered(template, one)}\n" for one in shown))


async def _change(
    engine: Engine, verb: str, containers: Sequence[Container], options: dict[str, str]
) -> Answer:
    if verb == "kill":
        return _kill(engine, containers, options)
    wait = float(options.get("-t") or options.get("--time") or _DEFAULT_STOP_TIMEOUT)
    for container in containers:
        carry_out = engine.restart if verb == "restart" else engine.stop
        await carry_out(container.options.name, wait)
    return Answer("".join(f"{container.options.name}\n" for container in containers))


def _kill(engine: Engine, containers: Sequence[Container], options: dict[str, str]) -> Answer:
    """Of the signals only those that freeze and thaw; USR1 freezes the engine of a model server."""
    carry_out = {
        "STOP": engine.stop_in_its_tracks,
        "USR1": engine.freeze,
        "CONT": engine.thaw,
    }
    word = (options.get("--signal") or "KILL").removeprefix("SIG")
    if word not in carry_out:
        return Answer(err=f"Error response from daemon: no such signal here: {word}\n", status=1)
    for container in containers:
        carry_out[word](container.options.name)
    return Answer("".join(f"{container.options.name}\n" for container in containers))


def _logs(containers: Sequence[Container], options: dict[str, str]) -> Answer:
    keep = int(options.get("--tail") or 1000)
    text = b"\n".join(container.log.read_bytes() for container in containers)
    lines = text.decode(errors="replace").splitlines()[-keep:]
    return Answer("".join(f"{line}\n" for line in lines))


def _ps(containers: Sequence[Container], *, quiet: bool) -> Answer:
    if quiet:
        return Answer("".join(f"{one.identity}\n" for one in containers if one.is_running))
    rows = [
        f"{one.identity[:12]}   simulated-worker   {_status(one):<10}   {one.options.name}"
        for one in containers
    ]
    return Answer("\n".join(["CONTAINER ID   IMAGE              STATUS       NAMES", *rows]) + "\n")


def _top(containers: Sequence[Container]) -> Answer:
    rows = [
        f"{one.process.pid} simulated-worker {one.options.name}"
        for one in containers
        if one.process is not None and one.is_running
    ]
    return Answer("\n".join(["PID COMMAND", *rows]) + "\n")


def _status(container: Container) -> str:
    return "running" if container.is_running else "exited"


def _described(container: Container) -> dict[str, Any]:
    """``docker inspect``'s own shape, in the parts that matter here."""
    pid = container.process.pid if container.process is not None and container.is_running else 0
    return {
        "Id": container.identity,
        "Name": f"/{container.options.name}",
        "Image": "sha256:" + "0" * 64,
        "Path": "simulated-worker",
        "Args": [container.options.name],
        "Mounts": [],
        "RestartCount": 0,
        "HostConfig": {"AutoRemove": False, "NetworkMode": "bridge", "DeviceRequests": None},
        "State": {
            "Status": _status(container),
            "Running": container.is_running,
            "Paused": False,
            "Restarting": False,
            "OOMKilled": False,
            "Dead": False,
            "Pid": pid,
            "ExitCode": container.exit_code,
            "Error": "",
            "StartedAt": _nanoseconds(container.started_at),
        },
    }


def _nanoseconds(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}000Z" if moment is not None else "0001-01-01T00:00:00Z"


def _rendered(template: str, described: dict[str, Any]) -> str:
    """A Go template of nothing but fields, ``{{.State.Pid}}`` or ``{{json .State}}``."""

    def field(found: re.Match[str]) -> str:
        value: Any = described
        for name in found["path"].strip(".").split("."):
            value = value[name] if name else value
        return json.dumps(value) if found["json"] else str(value)

    return _FIELD.sub(field, template)
