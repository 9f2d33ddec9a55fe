import hypothesis  # noqa: F401 - its plugin imports it at the end, where CPython 3.11 may crash
import pytest

from tests.parts import needs


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Session fixtures start real programs, so what they need is looked for before them."""
    for marker in item.iter_markers("needs"):
        for package in marker.args:
            needs.require(package)
