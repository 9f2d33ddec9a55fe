"""``steady demo``: the whole story on real parts, told by its exit code and its JSON."""

import json
import signal
from pathlib import Path

from tests.parts.processes import command, left_behind
from worker.demo_fleet import BROKEN, FREEZES, HEALTHY, RECOVERS

_DEMO = "import sys; from worker.demo import demo; sys.exit(demo(as_json=True))"


def test_the_story_comes_true_and_nothing_stays(tmp_path: Path) -> None:
    with command(_DEMO, tmp_path) as demo:
        line = demo.until('{"servers"', within=100)
        assert demo.process.wait(timeout=30) == 0
    servers = {one.pop("server"): one for one in json.loads(line)["servers"]}
    detected = {name: one.pop("detect_s") for name, one in servers.items()}
    assert servers.pop(HEALTHY)["restarts"] == 0
    assert servers == {
        FREEZES: {"verdict": "hung", "restarts": 1, "pages": 0, "outcome": "resolved"},
        RECOVERS: {"verdict": "hung", "restarts": 0, "pages": 0, "outcome": "recovered"},
        BROKEN: {"verdict": "hung", "restarts": 2, "pages": 2, "outcome": "budget_exhausted"},
    }
    assert detected.pop(HEALTHY) is None
    assert all(seconds > 2 for seconds in detected.values())
    assert left_behind(tmp_path) == []
    assert list(tmp_path.glob("steady-demo-*")) == []


def test_one_that_is_interrupted_stops_everything_and_fails(tmp_path: Path) -> None:
    with command(_DEMO, tmp_path) as demo:
        demo.until("freezes")
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(timeout=60) == 1
    assert left_behind(tmp_path) == []
