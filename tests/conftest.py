import hypothesis  # its plugin imports it at the end, where CPython 3.11 may crash
import pytest

from tests.parts import needs

# On a busy machine an example may take any time.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Session fixtures start real programs, so what they need is looked for before them."""
    for marker in item.iter_markers("needs"):
        for package in marker.args:
            needs.require(package)
