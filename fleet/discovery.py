"""What a host runs that looks like inference: what is asked, and how the answers are understood.

No container is asked for its environment. Command lines may hold secrets too: they are looked at,
and never kept. Everything here is a guess for a person to check, and nothing is acted on.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from fleet.actions import DockerRestart, SystemdRestart
from fleet.contracts.host import HostErrorType
from fleet.durations import parse
from fleet.host_replies import Reply, ReplyError, succeeded
from fleet.listening import Listening, listening

Argv = tuple[str, ...]
Kind = Literal["docker", "podman", "systemd"]

#: So many servers of one host are written down; a host with more is no start for a fleet file.
MOST = 100

_LABEL = "com.docker.compose"
_DOCKER = (
    '{"id":{{json .ID}},"name":{{json .Names}},"image":{{json .Image}},"command":{{json .Command}}'
    ',"ports":{{json .Ports}},"network":{{json .Networks}}'
    f',"directory":{{{{json (.Label "{_LABEL}.project.working_dir")}}}}'
    f',"service":{{{{json (.Label "{_LABEL}.service")}}}}}}'
)
_UNIT_PROPERTIES = ("Id", "LoadState", "ActiveState", "ExecStart", "TimeoutStopUSec")
_AT_WORK = frozenset({"active", "activating", "reloading", "refreshing"})

_ENGINES = {
    "vLLM": r"(?<![a-z])vllm",
    "SGLang": r"(?<![a-z])(?:sglang|sgl[-_])",
    "llama.cpp": r"(?<![a-z])llama[-_.]?(?:cpp|server)",
    "TGI": r"(?<![a-z])(?:text[-_]generation|tgi(?![a-z]))",
    "TensorRT-LLM": r"(?<![a-z])(?:trt|tensorrt)[-_]?llm",
    "Triton": r"(?<![a-z])triton(?:[-_]?(?:inference[-_]?)?server)?(?![a-z])",
    "Ollama": r"(?<![a-z])ollama",
    "LMDeploy": r"(?<![a-z])lmdeploy",
}
_WORKER = re.compile(r"(?<![a-z])(?:worker|inference|llm|gpu)(?:[-_.@]?\d+)?(?![a-z])")
#: What stands beside inference and often carries its name.
_BESIDE = re.compile(
    r"exporter|prometheus|grafana|web-?ui|persistenced|dcgm|gateway|proxy|dashboard"
    r"|(?<![a-z])(?:redis|valkey|postgres|mysql|rabbitmq|nginx|traefik|caddy|litellm|temporal)"
)
_IN_CONTAINER = re.compile(r"(?:.*/)?(docker|podman)")


@dataclass(frozen=True)
class Found:
    """Something that looks like inference. ``because`` says by what, for a person.

    ``container`` is the one that a systemd unit itself starts; ``stop_timeout`` a duration, where
    the unit says one. ``hindrance`` says what harm a restart would do, where it would.
    """

    kind: Kind
    name: str
    looks_like: str
    because: str
    image: str = ""
    directory: str = ""
    service: str = ""
    user: bool = False
    stop_timeout: str = ""
    container: str = ""
    id: str = ""
    listens: Listening | None = None
    hindrance: str = ""


@dataclass(frozen=True)
class Question:
    """One look at a host: the command, who answers it, and what is made of the answer."""

    argv: Argv
    who: str
    read: Callable[[Reply], list[Found]]
    optional: bool = False


def questions(*, sudo: bool) -> tuple[Question, ...]:
    """All that a host is asked; with ``sudo`` as root, where that needs no password."""
    root: Argv = ("sudo", "-n") if sudo else ()
    return (
        Question((*root, "docker", "ps", "--no-trunc", "--format", _DOCKER), "Docker", docker),
        Question((*root, "podman", "ps", "--no-trunc", "--format", "json"), "Podman", podman),
        Question(_show_argv(), "systemd", units),
        Question(_show_argv("--user"), "the user's systemd", user_units, optional=True),
    )


def _show_argv(*scope: str) -> Argv:
    shown = f"--property={','.join(_UNIT_PROPERTIES)}"
    return ("systemctl", *scope, "--no-pager", "show", shown, "*.service")


def absent(reply: Reply) -> bool:
    """Whether the host just has no such program: nothing that a person must hear of."""
    return reply.status == 127 or "not been booted with systemd" in reply.err


def docker(reply: Reply) -> list[Found]:
    """Read the containers that run, an object a line.

    Raises:
        ReplyError: the engine does not answer, refuses this user, or can't be understood.
    """
    lines = succeeded(reply, "the container engine").splitlines()
    return list(_containers("docker", (_object(line) for line in lines if line.strip())))


def podman(reply: Reply) -> list[Found]:
    """Read Podman's list, whose fields have other names and kinds than Docker's.

    Raises:
        ReplyError: as for ``docker``.
    """
    text = succeeded(reply, "the container engine").strip() or "[]"
    try:
        listed = json.loads(text) or []
    except ValueError:
        raise _not_understood() from None
    if not isinstance(listed, list) or not text.startswith(("[", "null")):
        raise _not_understood()
    return list(_containers("podman", (_as_docker(each) for each in listed)))


def units(reply: Reply) -> list[Found]:
    """Read the services of systemd that are at work.

    Raises:
        ReplyError: systemd does not answer.
    """
    return list(_units(succeeded(reply, "systemd"), user=False))


def user_units(reply: Reply) -> list[Found]:
    return list(_units(succeeded(reply, "systemd"), user=True))


def once(found: Iterable[Found]) -> list[Found]:
    """Each thing once: a container that a unit starts belongs to the unit, and a Docker that is
    Podman in disguise shows the same containers twice.
    """
    listed = list(found)
    owned = {each.container for each in listed if each.container}
    seen: set[str] = set()
    kept = []
    for each in listed:
        if (each.kind != "systemd" and each.name in owned) or (each.id and each.id in seen):
            continue
        seen.add(each.id)
        kept.append(each)
    return kept


def looks_like(names: Iterable[str], image: str, command: str) -> tuple[str, str] | None:
    """What it seems to be and by what that shows; none where it is no inference."""
    own, place = " ".join(names).lower(), image.lower()
    if _BESIDE.search(own) or _BESIDE.search(place):
        return None
    for engine, pattern in _ENGINES.items():
        for text, because in (
            (place, "its image"),
            (own, "its name"),
            (command.lower(), "its command line"),
        ):
            if re.search(pattern, text):
                return engine, because
    return ("a worker", "its name") if _WORKER.search(own) else None


def _containers(kind: Kind, shown: Iterable[Mapping[str, Any]]) -> Iterator[Found]:
    for each in shown:
        # An old link between containers is listed as a further name with a slash in it.
        name = next((n for n in _text(each, "name").split(",") if "/" not in n), "")
        service, image = _text(each, "service"), _text(each, "image")
        command = _text(each, "command").strip('"')
        like = looks_like((name, service), image, command)
        if like is None or not _fits(DockerRestart, kind=kind, host="h", name=name):
            continue
        yield Found(
            *(kind, name, *like),
            image=_shown(image),
            directory=_shown(_text(each, "directory")),
            service=_shown(service),
            id=_text(each, "id"),
            listens=listening(like[0], command, _text(each, "ports"), _text(each, "network")),
        )


def _as_docker(each: Any) -> dict[str, Any]:
    if not isinstance(each, dict):
        raise _not_understood()
    labels = each.get("Labels") or {}
    return {
        "id": each.get("Id"),
        "name": ",".join(map(str, each.get("Names") or ())),
        "image": each.get("Image"),
        "command": " ".join(map(str, each.get("Command") or ())),
        "ports": ",".join(_podman_ports(each.get("Ports"))),
        "network": "" if each.get("Networks") else "host",
        "directory": labels.get(f"{_LABEL}.project.working_dir"),
        "service": labels.get(f"{_LABEL}.service"),
    }


def _podman_ports(listed: Any) -> Iterator[str]:
    """The ports in Docker's words."""
    for each in listed if isinstance(listed, list) else ():
        shown = each if isinstance(each, dict) else {}
        first, target, more = (shown.get(k) for k in ("host_port", "container_port", "range"))
        if isinstance(first, int) and isinstance(target, int):
            last = (more if isinstance(more, int) and more > 0 else 1) - 1
            place, kind = shown.get("host_ip") or "", shown.get("protocol") or "tcp"
            yield f"{place}:{first}-{first + last}->{target}-{target + last}/{kind}"


def _units(text: str, *, user: bool) -> Iterator[Found]:
    for block in text.split("\n\n"):
        shown = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if shown.get("ActiveState") not in _AT_WORK or shown.get("LoadState") != "loaded":
            continue
        name, command = shown.get("Id", ""), _argv(shown.get("ExecStart", ""))
        like = looks_like((name.removesuffix(".service"),), "", command)
        if like is None or not _fits(SystemdRestart, kind="systemd", host="h", unit=name):
            continue
        on = listening(like[0], command, None, "")
        found = Found("systemd", name, *like, user=user, listens=on)
        yield replace(found, stop_timeout=_span(shown), container=_started_container(command))


def _argv(shown: str) -> str:
    """The command of ``{ path=/usr/bin/x ; argv[]=/usr/bin/x -a ; ignore_errors=no ; … }``."""
    match = re.search(r"argv\[\]=(.*?) ; ignore_errors=", shown)
    return match[1] if match else ""


def _started_container(command: str) -> str:
    """The name of the container that a unit runs or starts itself; empty where it does not."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    if not words or not _IN_CONTAINER.fullmatch(words[0]):
        return ""
    if "start" in words[1:2]:
        return words[-1]
    named = re.search(r"--name[= ](\S+)", " ".join(words))
    return named[1] if named else ""


def _span(shown: Mapping[str, str]) -> str:
    """``1min 30s`` as the fleet file writes it; empty where systemd never stops waiting."""
    text = shown.get("TimeoutStopUSec", "").replace("min", "m").replace(" ", "")
    try:
        parse(text)
    except ValueError:
        return ""
    return (
        text if _fits(SystemdRestart, kind="systemd", host="h", unit="u", stop_timeout=text) else ""
    )


def _fits(model: type[DockerRestart] | type[SystemdRestart], **values: str) -> bool:
    """Whether a fleet file may hold this; what it may not could not be restarted either."""
    try:
        model.model_validate(values)
    except ValueError:
        return False
    return True


def _object(line: str) -> dict[str, Any]:
    try:
        shown = json.loads(line)
    except ValueError:
        shown = None
    if not isinstance(shown, dict):
        raise _not_understood()
    return shown


def _not_understood() -> ReplyError:
    return ReplyError(
        HostErrorType.MISCONFIGURED, "the list of the container engine can't be understood"
    )


def _text(shown: Mapping[str, Any], key: str) -> str:
    value = shown.get(key)
    return value if isinstance(value, str) else ""


def _shown(text: str) -> str:
    """What a host says may stand in a comment or on a terminal only without its line breaks."""
    return "".join(char for char in text if char.isprintable())[:200]
