"""The gateway is tested on the event loop that it runs on."""

from typing import Any

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}
