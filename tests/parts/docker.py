"""A Docker daemon of its own, whose containers see the machine's programs and this Python."""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tests.parts import needs

IMAGE = "steady-test"
_START_WITHIN = 60.0
_COMMAND_WITHIN = 60.0
_STOP_WITHIN = 30.0
_BORROWED = ("/usr", "/lib", "/lib64", "/bin", "/sbin")


@dataclass(frozen=True)
class Docker:
    """A running daemon, reached by ``cli``. Containers share the machine's network and programs."""

    socket: Path
    pid: int
    client: str

    @property
    def cli(self) -> tuple[str, ...]:
        """The program with its arguments, as a fleet file would name it in ``cli``."""
        return (self.client, "-H", f"unix://{self.socket}")

    def __call__(self, *arguments: str) -> str:
        """Run a docker command and return what it printed.

        Raises:
            RuntimeError: it failed, or took over a minute.
        """
        done = subprocess.run(
            [*self.cli, *arguments],
            capture_output=True,
            text=True,
            timeout=_COMMAND_WITHIN,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"docker {' '.join(arguments)}: {done.stderr.strip()[-1000:]}")
        return done.stdout

    def run_container(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        mounts: Sequence[Path] = (),
        options: Sequence[str] = (),
        network: str = "host",
    ) -> str:
        """Start a container and return its ID. ``mounts`` are folders it may write to."""
        borrowed = [Path(place) for place in (*_BORROWED, sys.base_prefix, sys.prefix)]
        arguments = ["run", "--detach", "--name", name, "--network", network]
        for place in dict.fromkeys(borrowed):
            if place.exists():
                arguments += ["--volume", f"{place}:{place}:ro"]
        arguments += [f"--volume={place}:{place}" for place in mounts]
        arguments += [f"--env={key}={value}" for key, value in (env or {}).items()]
        arguments += [f"--label={key}={value}" for key, value in (labels or {}).items()]
        return self(*arguments, *options, IMAGE, *argv).strip()

    def inspect(self, name: str) -> dict[str, Any]:
        shown = TypeAdapter(list[dict[str, Any]]).validate_json(
            self("inspect", "--type", "container", name)
        )
        return shown[0]

    def stop(self, name: str, seconds: int = 1) -> None:
        self("stop", "-t", str(seconds), name)

    def pause(self, name: str) -> None:
        self("pause", name)

    def rm(self, name: str) -> None:
        self("rm", "--force", name)


@contextmanager
def docker() -> Iterator[Docker]:
    """Run a Docker daemon until the body ends, then end it and all its containers.

    Raises:
        FileNotFoundError: the machine has no dockerd or docker.
        RuntimeError: the daemon did not start; the message ends with its log.
    """
    daemon, client = needs.program("dockerd"), needs.program("docker")
    if daemon is None or client is None:
        raise FileNotFoundError("dockerd (package docker.io)")
    # A socket's path is limited to about a hundred characters, which a test's own folder exceeds.
    with tempfile.TemporaryDirectory(prefix="steady-docker-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        try:
            with _daemon(daemon, client, folder) as running:
                _import_image(running)
                yield running
                _remove_containers(running)
        finally:
            _unmount(folder)


@contextmanager
def _daemon(daemon: str, client: str, folder: Path) -> Iterator[Docker]:
    log = folder / "dockerd.log"
    socket = folder / "docker.sock"
    with log.open("wb") as sink:
        child = subprocess.Popen(
            [
                daemon,
                *("--iptables=false", "--ip6tables=false", "--bridge=none"),
                *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
                *("--pidfile", str(folder / "docker.pid"), "-H", f"unix://{socket}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"},
        )
    try:
        running = Docker(socket, child.pid, client)
        _wait_until_it_answers(child, running, log)
        yield running
    finally:
        child.terminate()
        try:
            child.wait(timeout=_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _wait_until_it_answers(child: subprocess.Popen[bytes], docker: Docker, log: Path) -> None:
    deadline = time.monotonic() + _START_WITHIN
    while time.monotonic() < deadline and child.poll() is None:
        try:
            docker("version", "--format", "{{.Server.Version}}")
        except RuntimeError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"dockerd did not start: {log.read_text(errors='replace')[-1500:]}")


def _import_image(docker: Docker) -> None:
    """An image of empty folders; what runs in it is mounted from the machine."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("tmp", "etc", "proc", "sys", "dev", "run"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
    done = subprocess.run(
        [*docker.cli, "import", "-", IMAGE],
        input=packed.getvalue(),
        capture_output=True,
        timeout=_COMMAND_WITHIN,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"docker import: {done.stderr.decode(errors='replace')[-1000:]}")


def _remove_containers(docker: Docker) -> None:
    for container in docker("ps", "--all", "--quiet").split():
        docker.rm(container)


def _unmount(folder: Path) -> None:
    """A daemon that ends leaves the mount of its network namespace behind."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for place in sorted(
        (place for place in mounted if place.startswith(f"{folder}/")), reverse=True
    ):
        subprocess.run(["umount", "--lazy", place], timeout=_COMMAND_WITHIN, check=False)
