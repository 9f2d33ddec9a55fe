"""A query that raced a step is asked again; one that is refused for good says so."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowQueryFailedError

from worker import asking

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)


class Refusing:
    """A handle that refuses the first ``times`` queries."""

    def __init__(self, times: int) -> None:
        self.times, self.asked = times, 0

    async def query(self, *_: object, **__: object) -> str:
        self.asked += 1
        if self.asked <= self.times:
            raise WorkflowQueryFailedError("asked while its next step was on its way: ask again")
        return "busy"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_BETWEEN", timedelta(0))


@pytest.mark.parametrize("times", [0, 1, 2])
async def test_a_query_that_raced_a_step_is_asked_again(times: int) -> None:
    handle: Any = Refusing(times)
    assert await asking.ask(handle, "status", str, SECOND) == "busy"
    assert handle.asked == times + 1


async def test_a_query_that_is_refused_for_good_is_given_up() -> None:
    handle: Any = Refusing(9)
    with pytest.raises(WorkflowQueryFailedError):
        await asking.ask(handle, "status", str, SECOND)
    assert handle.asked == 3
