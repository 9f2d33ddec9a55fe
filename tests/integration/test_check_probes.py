"""What a health check and a liveness probe make of an engine, as docs/check.md has them."""

import asyncio
import json
import os
import re
import shlex
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.durations import parse
from simulator import vllm
from tests.parts.docker import Docker
from tests.parts.ports import free_port
from tests.parts.simulated import ready
from tests.parts.vllm import Vllm, sim_vllm
from tests.parts.watched import until
from worker import check_arguments, check_options

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "check.md").read_text()
#: Where the page installs steady in the engine's image, and where the engine listens there.
PLACE, URL = "/opt/steady/bin/steady", "http://127.0.0.1:8000"
#: The page's own waits are for a real engine; the time-outs stay those of a busy test machine.
QUICK = ("--wait", "200ms", "--deadline", "1s")

ENGINE = (sys.executable, "-P", vllm.__file__, "--name=v-1", "--boot=0", "--step=0.02", "--load=2")


def block(language: str, word: str) -> str:
    """The code block of the page in this language that has this word."""
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return next(text for text in found if word in text)


def installed(folder: Path) -> Path:
    """A folder with the program ``steady``, as the page puts it into an image."""
    program = folder / "steady"
    code = "from worker.entry import main; main()"
    program.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))}"
        f' exec {shlex.quote(sys.executable)} -c "{code}" "$@"\n'
    )
    program.chmod(0o755)
    return program


def bounds(command: Sequence[str]) -> tuple[float, float]:
    """Seconds that the command may take at the most, and that it needs to prove anything."""
    assert command[:2] == [PLACE, "check"]
    typed = check_arguments.parse(command[2:])
    assert typed.liveness
    source = check_options.source(typed.url, {"deadline": typed.deadline})
    policy = check_options.policy(typed.wait, typed.load_limit)
    limit = check_options.limit(typed.within, source, policy)
    assert limit is not None
    return limit.total_seconds(), (2 * policy.confirm_wait + source.deadline).total_seconds()


class TestTheDockerfile:
    """Run by a real Docker: the instruction of the page, with shorter waits."""

    @pytest.fixture
    def instruction(self) -> str:
        text = block("dockerfile", "HEALTHCHECK").replace("\\\n", " ")
        return text[text.index("HEALTHCHECK") :].strip()

    def command(self, instruction: str) -> list[str]:
        given: list[str] = json.loads(instruction.partition(" CMD ")[2])
        return given

    def test_gives_the_check_more_time_than_it_takes(self, instruction: str) -> None:
        options = dict(re.findall(r"--([\w-]+)=(\S+)", instruction.partition(" CMD ")[0]))
        takes, needs = bounds(self.command(instruction))
        assert needs < takes < parse(options["timeout"]).total_seconds()

    @pytest.mark.needs("docker.io")
    async def test_a_busy_engine_stays_healthy_and_a_stuck_one_becomes_unhealthy(
        self, instruction: str, docker: Docker, tmp_path: Path
    ) -> None:
        command = self.command(instruction)
        async with contained(docker, command, tmp_path) as container:
            await container.checked("busy", times=3)
            assert container.health()["Status"] == "healthy"
            assert {code for code, _ in container.results()} == {0}
            assert await container.engine.asked() == 0

            await container.engine.say("freeze")
            await container.checked("stuck", times=2)
            stuck = [code for code, line in container.results() if line.startswith("stuck: ")]
            assert set(stuck) == {1}
            assert container.health()["Status"] == "unhealthy"


@dataclass(frozen=True)
class Container:
    docker: Docker
    name: str
    engine: Vllm

    def health(self) -> Mapping[str, Any]:
        shown: Mapping[str, Any] = self.docker.inspect(self.name)["State"]["Health"]
        return shown

    def results(self) -> list[tuple[int, str]]:
        """Exit code and line of the last checks, as Docker keeps them."""
        return [(each["ExitCode"], each["Output"]) for each in self.health()["Log"] or ()]

    async def checked(self, verdict: str, times: int) -> None:
        async def seen() -> bool:
            said = [line for _, line in self.results()]
            return sum(line.startswith(f"{verdict}: ") for line in said) >= times

        await until(seen, f"{verdict}, {times} times in a row", within=90)


@asynccontextmanager
async def contained(
    docker: Docker, command: Sequence[str], folder: Path
) -> AsyncIterator[Container]:
    """A simulated vLLM at work in a container with this health check, from its own image."""
    port, name = free_port(), f"checked-{time.monotonic_ns()}"
    here = [f"http://127.0.0.1:{port}" if word == URL else word for word in command]
    assert here != list(command)
    installed(folder)
    health = " ".join(map(shlex.quote, [*here, *QUICK]))
    # Of Docker's three the start period is left out: while it lasts, no failure counts.
    docker.run_container(
        name,
        [*ENGINE, f"--port={port}"],
        options=(
            *(f"--volume={ROOT}:{ROOT}:ro", f"--volume={folder}:{Path(PLACE).parent}:ro"),
            *("--health-cmd", health, "--health-interval", "500ms"),
            *("--health-timeout", "60s", "--health-retries", "2"),
        ),
    )
    try:
        engine = Vllm(port)
        await ready(engine.url)
        yield Container(docker, name, engine)
    finally:
        docker.rm(name)


class TestTheLivenessProbe:
    """No cluster is here: its command is run, as a kubelet would run it in the container."""

    @pytest.fixture
    def probe(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(block("yaml", "livenessProbe"))["livenessProbe"]
        return found

    def test_has_the_keys_that_kubernetes_knows(self, probe: dict[str, Any]) -> None:
        assert set(probe) == {"exec", "periodSeconds", "timeoutSeconds", "failureThreshold"}
        assert set(probe["exec"]) == {"command"}
        assert all(isinstance(word, str) for word in probe["exec"]["command"])

    def test_gives_the_check_more_time_than_it_takes(self, probe: dict[str, Any]) -> None:
        takes, needs = bounds(probe["exec"]["command"])
        assert needs < takes < probe["timeoutSeconds"]

    def test_so_does_the_shorter_one(self, probe: dict[str, Any]) -> None:
        found = re.search(r"`(--wait \S+ --deadline \S+ --within \S+)` fits into\n?", PAGE)
        timeout = re.search(r"`timeoutSeconds: (\d+)`", PAGE)
        assert found is not None
        assert timeout is not None
        takes, needs = bounds([PLACE, "check", "--liveness", *found[1].split(), URL])
        assert needs < takes < int(timeout[1])

    @pytest.mark.parametrize(
        ("word", "load", "code"), [(None, 2, 0), ("freeze", 2, 1), ("sleep", 0, 0), ("fail", 0, 0)]
    )
    async def test_its_command_fails_only_for_a_stuck_engine(
        self, probe: dict[str, Any], tmp_path: Path, word: str | None, load: int, code: int
    ) -> None:
        async with sim_vllm(load=load) as server:
            await asyncio.sleep(0.3)
            if word is not None:
                await server.say(word)
            assert await self.ended(probe, tmp_path, server.url) == code

    async def test_a_port_that_is_not_open_yet_passes(
        self, probe: dict[str, Any], tmp_path: Path
    ) -> None:
        assert await self.ended(probe, tmp_path, f"http://127.0.0.1:{free_port()}") == 0

    async def ended(self, probe: dict[str, Any], folder: Path, url: str) -> int:
        """Its exit code; without a shell, and with the folder of the page elsewhere."""
        program = str(installed(folder))
        as_here = {PLACE: program, URL: url}
        argv = [as_here.get(word, word) for word in probe["exec"]["command"]]
        process = await asyncio.create_subprocess_exec(
            *argv, *QUICK, env={"PATH": os.environ["PATH"]}, stdout=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(probe["timeoutSeconds"]):
            return await process.wait()
