from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.parts import docker as docker_part
from tests.parts import needs
from tests.parts import rig as rig_part
from tests.parts import sshd as sshd_part


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd_part.Sshd]:
    """A real OpenSSH server; a test that uses it is marked ``needs("openssh-server")``."""
    with sshd_part.sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture(scope="session")
def docker() -> Iterator[docker_part.Docker]:
    """A real Docker daemon; a test that uses it is marked ``needs("docker.io")``."""
    starting = docker_part.docker()
    try:
        running = starting.__enter__()
    except (RuntimeError, FileNotFoundError) as problem:
        needs.unmet("docker.io", str(problem))
    yield running
    starting.__exit__(None, None, None)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture(scope="session")
async def shared_rig(
    tmp_path_factory: pytest.TempPathFactory,
    docker: docker_part.Docker,
    sshd: sshd_part.Sshd,
) -> AsyncIterator[rig_part.Rig]:
    async with rig_part.whole(tmp_path_factory.mktemp("rig"), docker, sshd) as running:
        yield running


@pytest.fixture(scope="module")
async def rig(shared_rig: rig_part.Rig) -> rig_part.Rig:
    """A whole steady on real parts, with one worker; needs ``openssh-server`` and ``docker.io``."""
    await shared_rig.only_worker()
    return shared_rig
