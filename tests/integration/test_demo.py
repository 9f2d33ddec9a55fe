"""``steady demo``: the whole story on real parts, told by its exit code and its JSON."""

import json
import signal
from pathlib import Path

import pytest

from tests.parts.processes import command, left_behind
from worker.demo_fleet import (
    BROKEN,
    BUSY_ENGINE,
    FREEZES,
    FREEZING_ENGINE,
    HEALTHY,
    IDLE_ENGINE,
    RECOVERS,
)

pytestmark = pytest.mark.timeout(200)

_DEMO = "import sys; from worker.demo import demo; sys.exit(demo(as_json=True))"


def test_the_story_comes_true_and_nothing_stays(tmp_path: Path) -> None:
    with command(_DEMO, tmp_path) as demo:
        line = demo.until('{"servers"', within=110)
        assert demo.process.wait(timeout=30) == 0
    servers = {one.pop("server"): one for one in json.loads(line)["servers"]}
    detected = {name: one.pop("detect_s") for name, one in servers.items()}
    asked = {name: one.pop("requests") for name, one in servers.items()}
    for name in (HEALTHY, BUSY_ENGINE):
        assert servers.pop(name)["restarts"] == 0
        assert detected.pop(name) is None
    assert servers == {
        FREEZES: {"verdict": "hung", "restarts": 1, "pages": 0, "outcome": "resolved"},
        RECOVERS: {"verdict": "hung", "restarts": 0, "pages": 0, "outcome": "recovered"},
        BROKEN: {"verdict": "hung", "restarts": 1, "pages": 2, "outcome": "budget_exhausted"},
        FREEZING_ENGINE: {"verdict": "stuck", "restarts": 1, "pages": 0, "outcome": "resolved"},
        IDLE_ENGINE: {"verdict": "unresponsive", "restarts": 1, "pages": 0, "outcome": "resolved"},
    }
    assert all(seconds > 1 for seconds in detected.values())
    assert (asked[BUSY_ENGINE], asked[FREEZING_ENGINE], asked[HEALTHY]) == (0, 1, None)
    assert asked[IDLE_ENGINE] >= 2
    assert left_behind(tmp_path) == []
    assert list(tmp_path.glob("steady-demo-*")) == []


def test_one_that_is_interrupted_stops_everything_and_fails(tmp_path: Path) -> None:
    with command(_DEMO, tmp_path) as demo:
        demo.until("freezes")
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(timeout=60) == 1
    assert left_behind(tmp_path) == []
