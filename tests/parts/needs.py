"""Programs of the machine that some tests need, by the Debian package that brings them."""

import os
import shutil
from typing import NoReturn

import pytest

PROGRAMS = {
    "openssh-server": "sshd",
    "docker.io": "dockerd",
    "nginx-light": "nginx",
    "redis-server": "redis-server",
}

_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def program(name: str) -> str | None:
    """Where the program lies; services often stand in a folder that a user's PATH leaves out."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PATH}")


def unmet(package: str, why: str) -> NoReturn:
    """Skip the running test, or fail it where everything is required."""
    reason = f"needs the package {package}: {why}"
    if os.environ.get("STEADY_REQUIRE_ALL") == "1":
        pytest.fail(f"{reason} (STEADY_REQUIRE_ALL=1)", pytrace=False)
    pytest.skip(reason)


def require(package: str) -> None:
    if package not in PROGRAMS:
        pytest.fail(f"needs({package!r}): known are {', '.join(PROGRAMS)}", pytrace=False)
    if program(PROGRAMS[package]) is None:
        unmet(package, f"there is no {PROGRAMS[package]}")
