"""``python -m tests.parts.held_worker``: the real worker, held at chosen moments until its end.

``HOLDS`` lists ``[server, activity, "before" or "after"]``. An activity that is held before does
nothing; one that is held after has done all, and nobody hears of it. Each leaves a file with its
server's name in ``HELD_IN``, and goes on heartbeating, as one that is slow would.
"""

import asyncio
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from activities.guards import GuardActivities
from activities.host import HostActivities
from activities.pulse import pulse
from worker.settings import Settings
from worker.worker import run_worker

_OWNERS = (GuardActivities, HostActivities)


async def _wait_for_the_end(server: str) -> None:
    (Path(os.environ["HELD_IN"]) / server).touch()
    async with pulse():
        await asyncio.sleep(3600)


def _hold(step: str, places: dict[str, str]) -> None:
    owner: Any = next(each for each in _OWNERS if hasattr(each, step))
    real = getattr(owner, step)

    @functools.wraps(real)
    async def held(self: Any, request: Any) -> Any:
        moment = places.get(request.server)
        if moment == "before":
            await _wait_for_the_end(request.server)
        result = await real(self, request)
        if moment == "after":
            await _wait_for_the_end(request.server)
        return result

    setattr(owner, step, held)


def main() -> int:
    places: dict[str, dict[str, str]] = {}
    for server, step, moment in json.loads(os.environ["HOLDS"]):
        places.setdefault(step, {})[server] = moment
    for step, by_server in places.items():
        _hold(step, by_server)
    return run_worker(Settings())


if __name__ == "__main__":
    sys.exit(main())
