"""The demonstration succeeds only where its story came true, and says what did not."""

import pytest

from fleet.contracts.remediation import Outcome
from fleet.verdicts import Verdict
from simulator import vllm
from worker.demo_fleet import (
    BROKEN,
    BUSY_ENGINE,
    FREEZES,
    FREEZING_ENGINE,
    HEALTHY,
    IDLE_ENGINE,
    RECOVERS,
    simulated_servers,
)
from worker.story import ServerEnd, Told, untrue

_TRUE = {
    HEALTHY: ServerEnd(server=HEALTHY, verdict=Verdict.BUSY),
    FREEZES: ServerEnd(
        server=FREEZES,
        verdict=Verdict.HUNG,
        detect_s=4.0,
        restarts=1,
        outcome=Outcome.RESOLVED,
    ),
    RECOVERS: ServerEnd(
        server=RECOVERS, verdict=Verdict.HUNG, detect_s=4.0, outcome=Outcome.RECOVERED
    ),
    BROKEN: ServerEnd(
        server=BROKEN,
        verdict=Verdict.HUNG,
        detect_s=4.0,
        restarts=1,
        pages=2,
        outcome=Outcome.BUDGET_EXHAUSTED,
    ),
    BUSY_ENGINE: ServerEnd(server=BUSY_ENGINE, verdict=Verdict.BUSY, requests=0),
    FREEZING_ENGINE: ServerEnd(
        server=FREEZING_ENGINE,
        verdict=Verdict.STUCK,
        detect_s=6.0,
        restarts=1,
        requests=1,
        outcome=Outcome.RESOLVED,
    ),
    IDLE_ENGINE: ServerEnd(
        server=IDLE_ENGINE,
        verdict=Verdict.UNRESPONSIVE,
        detect_s=8.0,
        restarts=1,
        requests=4,
        outcome=Outcome.RESOLVED,
    ),
}
_TOLD = Told(
    pages={BROKEN: ["not_recovered", "budget_exhausted"]},
    incidents={FREEZES: 1, RECOVERS: 1, BROKEN: 1, FREEZING_ENGINE: 1, IDLE_ENGINE: 1},
)


def _lines(server: str, **changes: object) -> list[str]:
    ends = {**_TRUE, server: _TRUE[server].model_copy(update=changes)}
    return list(untrue(ends.values(), _TOLD))


def test_a_story_that_came_true_has_no_lines() -> None:
    assert list(untrue(_TRUE.values(), _TOLD)) == []


@pytest.mark.parametrize(
    ("server", "changes", "said"),
    [
        (HEALTHY, {"restarts": 1}, "gpu-healthy: its host restarted it 1 times, not 0"),
        (FREEZES, {"restarts": 2}, "gpu-freezes: its host restarted it 2 times, not 1"),
        (RECOVERS, {"restarts": 1}, "gpu-recovers: its host restarted it 1 times, not 0"),
        (BROKEN, {"restarts": 3}, "gpu-broken: its host restarted it 3 times, not 1"),
        (RECOVERS, {"detect_s": None}, "gpu-recovers: its fault was never detected"),
        (
            FREEZES,
            {"outcome": Outcome.ESCALATED},
            "gpu-freezes: the outcome is escalated, not resolved",
        ),
        (BROKEN, {"outcome": None}, "gpu-broken: the outcome is open, not budget_exhausted"),
        (
            HEALTHY,
            {"outcome": Outcome.RECOVERED},
            "gpu-healthy: the outcome is recovered, not no incident",
        ),
        (BUSY_ENGINE, {"requests": 1}, "vllm-busy: it received 1 requests, not 0"),
        (BUSY_ENGINE, {"restarts": 1}, "vllm-busy: its host restarted it 1 times, not 0"),
        (FREEZING_ENGINE, {"requests": 2}, "vllm-freezes: it received 2 requests, not 1"),
        (
            FREEZING_ENGINE,
            {"verdict": Verdict.UNRESPONSIVE},
            "vllm-freezes: it was found unresponsive, not stuck",
        ),
        (IDLE_ENGINE, {"requests": 1}, "vllm-idle: it received 1 requests, not 2 to 60"),
        (IDLE_ENGINE, {"requests": None}, "vllm-idle: it received None requests, not 2 to 60"),
    ],
)
def test_each_thing_that_is_not_true_has_a_line(
    server: str, changes: dict[str, object], said: str
) -> None:
    assert _lines(server, **changes) == [said]


def test_a_page_that_was_not_delivered_is_missed() -> None:
    told = Told(pages={BROKEN: ["not_recovered"]}, incidents=_TOLD.incidents)
    [line] = untrue(_TRUE.values(), told)
    assert line.startswith("gpu-broken: the pages delivered are ['not_recovered'], not")


def test_a_page_that_was_delivered_twice_is_one_too_many() -> None:
    pages = {BROKEN: ["not_recovered", "not_recovered", "budget_exhausted"]}
    assert len(list(untrue(_TRUE.values(), Told(pages, _TOLD.incidents)))) == 1


def test_a_second_remediation_is_one_too_many() -> None:
    told = Told(pages=_TOLD.pages, incidents={**_TOLD.incidents, FREEZES: 2})
    assert list(untrue(_TRUE.values(), told)) == [
        "gpu-freezes: 2 remediations were started for it, not 1"
    ]


def test_a_server_of_which_nothing_is_known_is_said() -> None:
    assert f"{HEALTHY}: nothing is known of it" in list(untrue([], _TOLD))


def test_whoever_asks_the_busy_engine_waits_for_longer_than_45_s() -> None:
    servers = simulated_servers("redis://127.0.0.1", {BUSY_ENGINE: 1})
    [busy] = [each for each in servers if isinstance(each, vllm.Options)]
    assert busy.load >= busy.slots
    assert busy.length * busy.step > 45
