"""A container engine for simulated workers: each container is a real process of its own."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Protocol

_DIES_WITHIN = 10.0


class Options(Protocol):
    """What a container runs: a program of the simulator, and its arguments as a dataclass.

    Where ``FREEZES_WHOLE``, all of the process stops; else only its engine does, by SIGUSR1, and
    its pages still answer. Both thaw by SIGCONT.
    """

    PROGRAM: ClassVar[str]
    FREEZES_WHOLE: ClassVar[bool]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str: ...

    @property
    def doomed(self) -> bool: ...


class NoSuchContainerError(Exception):
    """There is no container of that name."""


@dataclass
class Container:
    """``restarts`` counts the restarts that were really carried out since the host came up."""

    options: Options
    identity: str
    log: Path
    process: asyncio.subprocess.Process | None = None
    started_at: datetime | None = None
    restarts: int = 0
    exit_code: int = 0
    is_frozen: bool = False
    cure_fails: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None


class Engine:
    """Starts its containers, and takes faults for them; ``close`` ends every process of it.

    A container that was frozen when the engine closed comes up frozen in the next one on the same
    folder, since a fault of a server does not end with whoever watches it.
    """

    def __init__(self, folder: Path, workers: Sequence[Options]) -> None:
        self._folder = folder
        self._containers = {
            options.name: Container(
                options,
                hashlib.sha256(f"{folder}/{options.name}".encode()).hexdigest(),
                folder / f"{options.name}.log",
            )
            for options in workers
        }

    async def open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        frozen = self._frozen_before()
        for container in self._containers.values():
            container.is_frozen = container.options.name in frozen
            await self._start(container)

    async def close(self) -> None:
        frozen = [name for name, one in self._containers.items() if one.is_frozen]
        self._state_file.write_text(json.dumps(frozen))
        for container in self._containers.values():
            _send(container, signal.SIGKILL)
        for container in self._containers.values():
            await _ended(container, _DIES_WITHIN)

    def container(self, name: str) -> Container:
        """Find one by name or ID, as engines do.

        Raises:
            NoSuchContainerError: there is none.
        """
        for container in self._containers.values():
            if name in (container.options.name, container.identity):
                return container
        raise NoSuchContainerError(name)

    @property
    def containers(self) -> list[Container]:
        return list(self._containers.values())

    async def restart(self, name: str, stop_timeout: float) -> None:
        """SIGTERM, SIGKILL after ``stop_timeout`` seconds (a frozen process needs it), start."""
        container = self.container(name)
        async with container.lock:
            await self._stop(container, stop_timeout)
            container.is_frozen = False
            await self._start(container)
            container.restarts += 1

    async def stop(self, name: str, stop_timeout: float) -> None:
        container = self.container(name)
        async with container.lock:
            await self._stop(container, stop_timeout)
            container.is_frozen = False

    def freeze(self, name: str) -> None:
        """Let a worker freeze in its next job, which it begins at once; an engine where it is."""
        container = self.container(name)
        container.is_frozen = True
        _send(container, signal.SIGUSR1)

    def stop_in_its_tracks(self, name: str) -> None:
        """Freeze it where it stands, whatever it does."""
        container = self.container(name)
        container.is_frozen = True
        _send(container, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        container = self.container(name)
        container.is_frozen = False
        _send(container, signal.SIGCONT)

    def toggle_error(self, name: str) -> None:
        _send(self.container(name), signal.SIGUSR2)

    def crash(self, name: str) -> None:
        _send(self.container(name), signal.SIGKILL)

    def cure_fails(self, name: str, *, fails: bool = True) -> None:
        """Whether from now on each start of it freezes in its first job."""
        self.container(name).cure_fails = fails

    async def _start(self, container: Container) -> None:
        with container.log.open("ab") as log:
            container.process = await asyncio.create_subprocess_exec(
                *_argv(container),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        container.started_at = datetime.now(UTC)
        container.exit_code = 0
        if container.is_frozen and container.options.FREEZES_WHOLE:
            _send(container, signal.SIGSTOP)
        container.is_frozen = container.is_frozen or container.cure_fails

    async def _stop(self, container: Container, within: float) -> None:
        _send(container, signal.SIGTERM)
        if not await _ended(container, within):
            _send(container, signal.SIGKILL)
            await _ended(container, _DIES_WITHIN)

    @property
    def _state_file(self) -> Path:
        return self._folder / "frozen.json"

    def _frozen_before(self) -> set[str]:
        try:
            return set(json.loads(self._state_file.read_text()))
        except (OSError, ValueError, TypeError):
            return set()


def _argv(container: Container) -> list[str]:
    options = asdict(container.options)
    comes_up_frozen = container.is_frozen and not container.options.FREEZES_WHOLE
    options["doomed"] = container.options.doomed or container.cure_fails or comes_up_frozen
    # By its file and with -P: no folder that steady is started in can shadow a module.
    argv = [sys.executable, "-P", container.options.PROGRAM]
    for name, value in options.items():
        if value is True:
            argv.append(f"--{name}")
        elif value is not False:
            argv += [f"--{name}", str(value)]
    return argv


def _send(container: Container, order: signal.Signals) -> None:
    if container.process is not None and container.is_running:
        os.kill(container.process.pid, order)


async def _ended(container: Container, within: float) -> bool:
    if container.process is None:
        return True
    try:
        container.exit_code = await asyncio.wait_for(container.process.wait(), within)
    except TimeoutError:
        return False
    return True
