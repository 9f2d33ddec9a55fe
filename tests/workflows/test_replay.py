"""Workflows that run while steady is renewed must go on: recorded histories are replayed.

Where this fails, a change of a workflow would stop every one that runs. Mend it with
``workflow.patched``, or, where none of that kind can be running, record anew:
``make record-histories``. What earlier releases recorded (``histories/first``) must be replayed
whatever is recorded anew: workflows of theirs may be running.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from fleet.contracts.alerts import AlertMessage, AlertResult
from fleet.contracts.names import ALERT, REMEDIATION
from fleet.contracts.remediation import Outcome, RemediationStatus
from fleet.verdicts import Verdict
from tests.record import FOLDER, replace
from worker.runner import PunctualRunner
from workflows.alert import Alert
from workflows.ask import AskEngine
from workflows.drill import Drill
from workflows.fleet import FleetWorkflow
from workflows.guard import ServerGuard
from workflows.health import HealthSweep
from workflows.host_guard import HostGuard
from workflows.probe import ProbeSweep
from workflows.record import ReadingRecord
from workflows.remediation import Remediation
from workflows.storm import StormGuard

pytestmark = pytest.mark.anyio

WORKFLOWS: list[type] = [
    HealthSweep,
    Remediation,
    ServerGuard,
    StormGuard,
    FleetWorkflow,
    Alert,
    Drill,
    ReadingRecord,
    HostGuard,
    ProbeSweep,
    AskEngine,
]
#: The newest recording, which has to be complete; and all that was ever released.
NEWEST = sorted(FOLDER.glob("*.json"))
HISTORIES = sorted(FOLDER.rglob("*.json"))
OF_ENGINES = (Verdict.STUCK, Verdict.UNRESPONSIVE)
#: Bytes; a history that is far larger was recorded from a story that went in circles.
LARGEST = 250_000


def name_of(path: Path) -> str:
    return str(path.relative_to(FOLDER).with_suffix(""))


def history(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text())


def started(path: Path) -> dict[str, Any]:
    first = json.loads(path.read_text())["events"][0]
    attributes: dict[str, Any] = first["workflowExecutionStartedEventAttributes"]
    return attributes


def result(path: Path) -> bytes | None:
    last = json.loads(path.read_text())["events"][-1]
    completed = last.get("workflowExecutionCompletedEventAttributes")
    return b64decode(completed["result"]["payloads"][0]["data"]) if completed else None


def replayer(*workflows: type) -> Replayer:
    return Replayer(
        workflows=workflows,
        data_converter=pydantic_data_converter,
        workflow_runner=PunctualRunner(),
    )


@pytest.mark.parametrize("path", HISTORIES, ids=name_of)
async def test_what_was_recorded_is_what_the_present_workflows_would_do(path: Path) -> None:
    await replayer(*WORKFLOWS).replay_workflow(history(path))


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_of_a_remediation_was_recorded(outcome: Outcome) -> None:
    results = (result(path) for path in NEWEST if path.stem.startswith("remediation-"))
    ended = {RemediationStatus.model_validate_json(raw).outcome for raw in results if raw}
    assert outcome in ended


@pytest.mark.parametrize("verdict", OF_ENGINES)
def test_every_verdict_of_an_engine_that_is_acted_on_was_recorded(verdict: Verdict) -> None:
    results = (result(path) for path in NEWEST if path.stem.startswith("remediation-"))
    ended = [RemediationStatus.model_validate_json(raw) for raw in results if raw]
    assert (verdict, Outcome.RESOLVED) in {(each.verdict, each.outcome) for each in ended}


def test_what_the_first_release_recorded_is_still_there() -> None:
    names = [name_of(path) for path in HISTORIES]
    assert len(names) == len(set(names))
    assert len([name for name in names if name.startswith("first/")]) == 40


def test_what_is_recorded_anew_replaces_the_newest_set_alone(tmp_path: Path) -> None:
    fresh, folder = tmp_path / "fresh", tmp_path / "histories"
    for place, name in ((fresh, "new"), (folder, "old"), (folder / "first", "old")):
        place.mkdir(exist_ok=True)
        (place / f"{name}.json").write_text(name)
    replace(fresh, folder)
    assert [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.json"))] == [
        "first/old.json",
        "new.json",
    ]


@pytest.mark.parametrize("each", WORKFLOWS)
def test_every_workflow_was_recorded(each: type) -> None:
    name = workflow._Definition.must_from_class(each).name
    assert name in {started(path)["workflowType"]["name"] for path in NEWEST}


@pytest.mark.parametrize(
    "name",
    [
        "remediation-escalated-for_long",
        "guard-for_long",
        "host-guard-for_long",
        "storm-guard",
        "fleet-applied",
        "record-for_long",
    ],
)
def test_what_lives_for_long_was_recorded_on_both_sides_of_its_renewal(name: str) -> None:
    before = json.loads((FOLDER / f"{name}.json").read_text())["events"][-1]
    after = started(FOLDER / f"{name}-continued.json")
    assert before["eventType"] == "EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW"
    renewed = before["workflowExecutionContinuedAsNewEventAttributes"]["newExecutionRunId"]
    assert renewed
    assert after["continuedExecutionRunId"]


def test_sweeps_were_recorded_with_the_memory_of_the_one_before() -> None:
    sweeps = [path for path in HISTORIES if path.stem.startswith(("health-", "probe-"))]
    assert len(sweeps) >= 2
    assert all("lastCompletionResult" in started(path) for path in sweeps)


@pytest.mark.parametrize("path", HISTORIES, ids=name_of)
def test_a_history_says_nothing_of_the_machine_that_recorded_it(path: Path) -> None:
    text = path.read_text()
    decoded = " ".join(_payloads(json.loads(text)))
    for said in (text, decoded):
        assert not re.search(r"/(home|root|work|usr|tmp|Users|site-packages)/", said)
        assert "stackTrace" not in said
        assert "Traceback" not in said
    # The SDK's own identity is the process and the name of the machine.
    assert not [each for each in re.findall(r'"identity": "([^"]*)"', text) if "@" in each]
    assert len(text) < LARGEST


def _payloads(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [b64decode(value["data"]).decode(errors="replace")] if _is_payload(value) else []
        return own + [text for inner in value.values() for text in _payloads(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _payloads(inner)]
    return []


def _is_payload(value: dict[str, Any]) -> bool:
    return isinstance(value.get("data"), str) and "metadata" in value


# --- that a change would be seen -----------------------------------------------------------------


@workflow.defn(name=ALERT, sandboxed=False)
class Hesitant:
    """The workflow with a wait that the recorded one did not have."""

    @workflow.run
    async def run(self, message: AlertMessage) -> AlertResult:
        await workflow.sleep(timedelta(minutes=1))
        return await Alert(message).run(message)


@workflow.defn(name=REMEDIATION, sandboxed=False)
class Idle:
    """A workflow that does nothing of what the recorded one did."""

    @workflow.run
    async def run(self, request: Any) -> str:
        return f"nothing was done for {request}"


@pytest.mark.parametrize(
    ("changed", "name"), [(Hesitant, "alert-delivered"), (Idle, "remediation-resolved")]
)
async def test_a_workflow_that_was_changed_without_care_is_found_out(
    changed: Callable[..., Any], name: str
) -> None:
    with pytest.raises(workflow.NondeterminismError):
        await replayer(changed).replay_workflow(history(FOLDER / f"{name}.json"))  # type: ignore[arg-type]
