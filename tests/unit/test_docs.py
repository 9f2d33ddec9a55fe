"""The documents are held to the code: what they show runs, what they list is what there is."""

import re
import shlex
import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from redis import Redis

from fleet.config import Fleet, FleetSection
from fleet.contracts.drill import DrillOutcome, DrillPhase
from fleet.contracts.remediation import Outcome, Phase, RemediationSignal
from fleet.drill_text import MEANING as MEANING_OF_DRILL
from fleet.durations import parse, show
from fleet.engines.profiles import PROFILES
from fleet.engines.reading import EngineReading, EngineState
from fleet.gpu_faults import DEFAULT_STATES, STATES, XIDS
from fleet.judge import find
from fleet.policy import HostBudget, Policy, RollingBudget
from fleet.recording import MOST_LOOKS
from fleet.records import from_record
from fleet.remediation import MEANING
from fleet.reminders import MOST, due
from fleet.sources import RedisSource
from fleet.verdicts import GIVEN_BY, OWNERS, Verdict
from fleet.whatif import KEYS, SHORT
from worker import check_arguments, check_options
from worker.check_report import Report, exit_of
from worker.cli import app
from worker.commands.exits import MEANING as MEANING_OF_EXIT
from worker.embedded import embedded_valkey

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
REPLAY = (ROOT / "docs" / "replay.md").read_text()
ENGINES = (ROOT / "docs" / "engines.md").read_text()
CHECK = (ROOT / "docs" / "check.md").read_text()
INCIDENT = (ROOT / "docs" / "incident.md").read_text()
DRILL = (ROOT / "docs" / "drill.md").read_text()
PAGES = {
    "README.md": README,
    "docs/actions.md": (ROOT / "docs" / "actions.md").read_text(),
    "docs/incident.md": INCIDENT,
    "docs/drill.md": DRILL,
    "docs/check.md": CHECK,
    "docs/evidence.md": (ROOT / "docs" / "evidence.md").read_text(),
    "docs/budget.md": (ROOT / "docs" / "budget.md").read_text(),
    "docs/gateway.md": (ROOT / "docs" / "gateway.md").read_text(),
    "docs/storms.md": (ROOT / "docs" / "storms.md").read_text(),
    "docs/engines.md": ENGINES,
    "docs/engines/vllm.md": (ROOT / "docs" / "engines" / "vllm.md").read_text(),
    "docs/monitoring.md": (ROOT / "docs" / "monitoring.md").read_text(),
    "docs/replay.md": REPLAY,
}
EVIDENCE = PAGES["docs/evidence.md"]
EVIDENCE_CODE = "".join(
    (ROOT / folder / "evidence.py").read_text() for folder in ("fleet", "activities")
)
STEADY = {"steady", ".venv/bin/steady"}
GROUP = typer.main.get_group(app)


def block(page: str, mark: str, language: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n```{language}\n(.*?)```", page, re.DOTALL)
    assert found is not None, f"there is no {language} block after <!-- {mark} -->"
    return found[1]


def table(page: str, mark: str) -> list[list[str]]:
    """The rows of the table after a mark, without its head."""
    found = re.search(rf"<!-- {mark} -->\n((?:\|.*\n)+)", page)
    assert found is not None, f"there is no table after <!-- {mark} -->"
    rows = [line.strip().strip("|").split("|") for line in found[1].splitlines()]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.anyio
async def test_the_worker_of_the_readme_publishes_a_record_that_steady_understands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = block(README, "worker", "python")
    source = RedisSource(key="worker:gpu-1")
    async with embedded_valkey(tmp_path) as url:
        monkeypatch.setenv("HEARTBEAT_STORE", url)
        worker: dict[str, object] = {}
        exec(compile(code, "README.md", "exec"), worker)
        beat = worker["beat"]
        assert callable(beat)
        beat("processing", job="job-7", progress=3)
        with Redis.from_url(url, decode_responses=True) as store:
            record: dict[str, object] = dict(store.hgetall(source.key))
    at = datetime.now(UTC)
    reading = from_record("gpu-1", record, source, at)
    assert find(reading, None, Policy()).verdict is Verdict.BUSY
    assert (reading.job, reading.progress) == ("job-7", "3")
    assert reading.process
    old = replace(reading, at=at + timedelta(minutes=3))
    assert find(old, None, Policy()).verdict is Verdict.HUNG


def test_the_worker_of_the_readme_has_ten_lines() -> None:
    lines = [line for line in block(README, "worker", "python").splitlines() if line.strip()]
    assert len(lines) <= 10


def test_the_fleet_file_of_the_readme_is_valid_and_reads_the_record_of_its_worker() -> None:
    text = block(README, "fleet", "toml")
    assert len([line for line in text.splitlines() if line.strip()]) <= 10
    spec = Fleet.model_validate(tomllib.loads(text)).spec("gpu-1")
    assert isinstance(spec.source, RedisSource)
    assert f'"{spec.source.key}"' in block(README, "worker", "python")


def test_the_timeline_of_an_incident_follows_the_defaults() -> None:
    policy, sweep = Policy(), FleetSection().sweep_every
    first_seen = policy.stale_after + sweep
    moments = [
        timedelta(0),
        policy.stale_after,
        first_seen,
        first_seen + (policy.observations - 1) * sweep,
        first_seen + policy.persist_hung,
        first_seen + policy.persist_hung + policy.verify_after,
    ]
    shown = [f"{at // timedelta(minutes=1)}:{at.seconds % 60:02d}" for at in moments]
    assert [row[0] for row in table(README, "timeline")] == shown


def test_the_limits_of_the_readme_are_the_defaults() -> None:
    policy = Policy()
    assert policy.budget == RollingBudget(limit=3, window=timedelta(hours=24))
    assert "At most 3 restarts of a server in any 24 h" in README
    assert HostBudget() == HostBudget(limit=6, window=timedelta(hours=24))
    assert "All servers of one machine together have 6 in 24 h" in README
    assert [delay // timedelta(minutes=1) for delay in policy.retry_delays[:3]] == [0, 5, 15]
    assert policy.tries == 5
    assert "then after 5 and 15 min, at most five times an incident" in README
    assert policy.load_limit == timedelta(minutes=15)
    assert policy.persist_error == timedelta(minutes=30)


def test_the_readme_lists_every_verdict_that_can_be_given_with_its_owner_and_why() -> None:
    rows = [(name, row[1], row[2]) for row in table(README, "verdicts") for name in names(row[0])]
    given = frozenset().union(*GIVEN_BY.values())
    assert sorted(rows) == sorted(
        (verdict.value, OWNERS[verdict].owner.value, OWNERS[verdict].why) for verdict in given
    )


def test_every_phase_is_explained() -> None:
    explained = [names(row[0])[0] for row in table(INCIDENT, "phases")]
    assert sorted(explained) == sorted(phase.value for phase in Phase)


def test_every_outcome_is_listed_with_its_meaning() -> None:
    listed = {names(row[0])[0]: row[1] for row in table(INCIDENT, "outcomes")}
    assert listed == {outcome.value: MEANING[outcome] for outcome in Outcome}


def test_every_phase_and_outcome_of_a_drill_is_explained() -> None:
    explained = [names(row[0])[0] for row in table(DRILL, "drill phases")]
    assert sorted(explained) == sorted(phase.value for phase in DrillPhase)
    listed = {names(row[0])[0]: row[1] for row in table(DRILL, "drill outcomes")}
    assert listed == {outcome.value: MEANING_OF_DRILL[outcome] for outcome in DrillOutcome}


def test_every_fault_that_no_restart_cures_is_listed_with_what_helps() -> None:
    listed = {int(names(row[0])[0]): (row[1], row[2]) for row in table(EVIDENCE, "xids")}
    assert listed == {code: (each.words, str(each.remedy)) for code, each in XIDS.items()}
    states = {names(row[0])[0]: tuple(row[1:]) for row in table(EVIDENCE, "gpu states")}
    assert states == {
        str(state): (each.words, str(each.remedy), "yes" if state in DEFAULT_STATES else "no")
        for state, each in STATES.items()
    }


def test_every_file_of_evidence_is_explained() -> None:
    explained = [name for row in table(EVIDENCE, "files") for name in names(row[0])]
    shown = set(re.findall(r'"([a-z-]+\.(?:txt|json))"', EVIDENCE_CODE))
    assert set(explained) == shown


def test_signals_sent_with_the_temporal_command_line_are_known_to_the_workflow() -> None:
    words = {signal.value for signal in RemediationSignal} - {RemediationSignal.OBSERVE}
    sent = set(re.findall(r"temporal workflow signal .* --name (\S+)", INCIDENT))
    assert sent == words


def test_every_threshold_that_can_be_tried_is_explained_with_its_short_name() -> None:
    explained = {name for row in table(REPLAY, "keys") for name in names(row[0])}
    assert explained == {*KEYS, *SHORT}
    assert f"at most {MOST_LOOKS}" in REPLAY
    assert FleetSection().keep_readings == timedelta(days=7)


def test_a_month_holds_as_many_reminders_as_the_page_says() -> None:
    since = datetime(2026, 11, 1, tzinfo=UTC)
    policy = Policy()
    assert due(since, since + timedelta(days=31), policy.remind_after) == 5
    assert "a month holds five reminders,\nand eight are the most" in INCIDENT
    assert MOST == 8


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", PAGES[page])
    assert [to for to in targets if not ((ROOT / page).parent / to).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)`", PAGES[page])) <= targets


def commands_of(page: str) -> list[list[str]]:
    """Every use of the steady command in the shell blocks of a page, as its arguments."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [shlex.split(line, comments=True) for text in blocks for line in text.splitlines()]
    return [words[at + 1 :] for words in lines for at, word in enumerate(words) if word in STEADY]


@pytest.mark.parametrize("page", PAGES)
def test_each_steady_command_in_a_shell_block_is_one_that_the_command_line_takes(page: str) -> None:
    used = commands_of(PAGES[page])
    assert used
    for arguments in used:
        taken = GROUP.commands[arguments[0]].make_context(arguments[0], arguments[1:])
        assert taken.params is not None
        if arguments[0] == "check":
            typed = check_arguments.parse(arguments[1:])
            check_options.source(typed.url, {"request": typed.request, "kind": typed.engine})


def test_the_readme_lists_every_command() -> None:
    listed = [names(row[0])[0].split()[1] for row in table(README, "commands")]
    assert sorted(listed) == sorted(GROUP.commands)


def test_the_readme_lists_every_exit_code_with_its_meaning() -> None:
    listed = {int(names(row[0])[0]): row[1] for row in table(README, "exit codes")}
    assert listed == {int(code): meaning for code, meaning in MEANING_OF_EXIT.items()}


def test_the_page_of_the_check_lists_every_exit_code_and_every_key() -> None:
    rows = [(name, *row[1:]) for row in table(CHECK, "check exits") for name in names(row[0])]
    assert sorted(rows) == sorted(
        (
            str(verdict),
            str(int(exit_of(verdict, liveness=False))),
            str(int(exit_of(verdict, liveness=True))),
        )
        for verdict in GIVEN_BY["engine"] | {Verdict.HEALTHY}
    )
    kinds = {"vLLM": "vllm", "LMDeploy": "lmdeploy", "SGLang": "sglang", "llama.cpp": "llamacpp"}
    wait, deadline = parse("5s"), parse("60s")
    for row in table(CHECK, "check times"):
        for engine in row[0].split(", "):
            profile = PROFILES[kinds[engine]]
            second = max(wait, profile.window)
            assert row[1:] == [show(second), show(wait + second + deadline)]
    seen = EngineReading(profile="vllm", engines=(EngineState(),))
    document = Report(Verdict.IDLE, "", seen, {}, 0, 0, 0).document()
    keys = table(CHECK, "check json")
    assert [names(row[0])[0] for row in keys] == list(document)
    of_engine = next(row for row in keys if names(row[0]) == ["engines"])
    assert names(of_engine[1]) == list(document["engines"][0])
