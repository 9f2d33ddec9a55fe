"""``steady check`` without an engine: what it waits for and asks, its exit codes, wrong usage."""

import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleet.engine_sources import CustomRequest, EngineSource
from fleet.engines.checking import Checked, check
from fleet.engines.page import read_page
from fleet.engines.place import EnginePlace
from fleet.engines.profiles import PROFILES
from fleet.engines.proving import Ask, Look, Pause, Step
from fleet.engines.reading import Answer, Came, EngineReading, EngineState, Page
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.verdicts import Verdict
from tests.parts.ports import free_port
from tests.parts.steady_check import STEADY
from tests.parts.vllm import sim_vllm
from tests.parts.vllm_pages import engine, page
from worker import check_options
from worker.check_report import Report, exit_of, moved
from worker.cli import app
from worker.commands.exits import Exit

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
ROOT = Path(__file__).parents[2]
POLICY = Policy(confirm_wait=timedelta(seconds=5))

#: The codes of issue and page: with ``--liveness`` only what is proved stuck is a failure.
CODES = {
    Verdict.HEALTHY: (0, 0),
    Verdict.BUSY: (0, 0),
    Verdict.IDLE: (0, 0),
    Verdict.ASLEEP: (0, 0),
    Verdict.LOADING: (0, 0),
    Verdict.STUCK: (1, 1),
    Verdict.UNRESPONSIVE: (1, 1),
    Verdict.MISSING: (3, 0),
    Verdict.UNREADABLE: (3, 0),
    Verdict.UNPROVEN: (3, 0),
    Verdict.DEGRADED: (3, 0),
    Verdict.OVERDUE: (3, 0),
    Verdict.SUSPECT: (3, 0),
    Verdict.RESTARTED: (3, 0),
    Verdict.HUNG: (3, 0),
    Verdict.ERROR: (1, 1),
    Verdict.SILENT: (3, 0),
    Verdict.STALLED: (3, 0),
    Verdict.SKEWED: (3, 0),
}


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_has_its_exit_code(verdict: Verdict) -> None:
    codes = (exit_of(verdict, liveness=False), exit_of(verdict, liveness=True))
    assert codes == CODES[verdict]


def look(text: bytes, answer: Answer | None = None) -> Reading:
    seen, detail = read_page(text, PROFILES["vllm"])
    seen = replace(seen, answer=answer)
    return Reading(server="x", at=AT, detail=detail, engine=seen)


def without(page: Page, started: str | None = None) -> Reading:
    seen = EngineReading(profile="vllm", page=page, started=started)
    return Reading(server="x", at=AT, detail="as it said", engine=seen)


def played(
    *readings: Reading, asked: Reading | None = None, spans: list[timedelta] | None = None
) -> tuple[list[str], Checked]:
    """What the story did, one word a step, and what it came to."""
    done: list[str] = []
    left, story, came = list(readings), check(POLICY), None
    while True:
        try:
            step: Step = story.send(came)
        except StopIteration as end:
            assert left == [], "it did not look as often as was expected"
            return done, end.value
        done.append({Look: "look", Pause: "wait", Ask: "ask"}[type(step)])
        came = left.pop(0) if isinstance(step, Look) else None
        if isinstance(step, Pause) and spans is not None:
            spans.append(step.span)
        if isinstance(step, Ask):
            came = asked


STILL = engine(running=2, steps=100, kv=0.5)
IDLE = engine(steps=100)
UNANSWERED = Answer(came=Came.NONE, took=60, sent=1)
GIVEN = Answer(came=Came.GIVEN, took=0.1, sent=1)


class TestTheStory:
    def test_a_witness_that_moves_ends_it_after_one_wait(self) -> None:
        steps, came = played(look(page(STILL)), look(page(engine(running=2, steps=103, kv=0.5))))
        assert (steps, came.verdict) == (["look", "wait", "look"], Verdict.BUSY)

    @pytest.mark.parametrize(
        ("witness", "more"), [("kv", 0.4), ("output", 101), ("prompt", 9), ("tokens", 201)]
    )
    def test_any_witness_will_do(self, witness: str, more: float) -> None:
        _, came = played(look(page(STILL)), look(page({**STILL, witness: more})))
        assert came.verdict is Verdict.BUSY

    def test_what_moves_at_the_second_wait_only_is_not_asked(self) -> None:
        readings = [look(page(STILL)), look(page(STILL)), look(page({**STILL, "kv": 0.6}))]
        steps, came = played(*readings)
        assert steps == ["look", "wait", "look", "wait", "look"]
        assert came.verdict is Verdict.BUSY

    def test_stuck_takes_two_waits_and_an_unanswered_request(self) -> None:
        asked = look(page(STILL), UNANSWERED)
        steps, came = played(*[look(page(STILL))] * 3, asked=asked)
        assert steps == ["look", "wait", "look", "wait", "look", "ask"]
        assert came.verdict is Verdict.STUCK

    def test_an_answer_says_that_the_gauges_are_stale(self) -> None:
        steps, came = played(*[look(page(STILL))] * 3, asked=look(page(STILL), GIVEN))
        assert steps[-1] == "ask"
        assert came.verdict is Verdict.IDLE
        assert came.why.endswith("its gauges are stale")

    def test_the_waits_span_what_the_engines_page_needs(self) -> None:
        def sglang(moved: float) -> Reading:
            state = EngineState(running=1, witnesses={"used": moved})
            return Reading(
                server="x", at=AT, engine=EngineReading(profile="sglang", engines=(state,))
            )

        spans: list[timedelta] = []
        _, came = played(*[sglang(1)] * 3, spans=spans)
        assert came.verdict is Verdict.SUSPECT
        assert sum(spans, timedelta(0)) >= timedelta(seconds=35)

    def test_only_waiting_work_is_work(self) -> None:
        waiting = page(engine(waiting=3, steps=100))
        _, came = played(*[look(waiting)] * 3, asked=look(waiting, UNANSWERED))
        assert came.verdict is Verdict.STUCK

    def test_one_rank_that_stands_still_is_enough(self) -> None:
        pages = [page(STILL, engine("1", running=2, steps=each)) for each in (1, 2, 3)]
        rank = Answer(came=Came.NONE, took=60, sent=1, rank="0")
        _, came = played(*map(look, pages), asked=look(pages[-1], rank))
        assert came.verdict is Verdict.STUCK

    def test_an_idle_one_is_asked_after_the_second_look(self) -> None:
        readings = [look(page(IDLE))] * 2
        steps, came = played(*readings, asked=look(page(IDLE), GIVEN))
        assert steps == ["look", "wait", "look", "ask"]
        assert came.verdict is Verdict.IDLE
        assert "stale" not in came.why

    def test_an_idle_one_that_does_not_answer_is_unresponsive(self) -> None:
        _, came = played(*[look(page(IDLE))] * 2, asked=look(page(IDLE), UNANSWERED))
        assert came.verdict is Verdict.UNRESPONSIVE

    def test_an_idle_one_that_moved_meanwhile_needs_no_request(self) -> None:
        steps, came = played(look(page(IDLE)), look(page(engine(steps=101))))
        assert (steps, came.verdict) == (["look", "wait", "look"], Verdict.IDLE)

    def test_work_that_came_in_at_the_second_look_gets_both_its_waits(self) -> None:
        begun = engine(waiting=1, steps=100)
        readings = [look(page(IDLE)), *[look(page(begun))] * 3]
        steps, came = played(*readings, asked=look(page(begun), UNANSWERED))
        assert steps == [*["look", "wait"] * 3, "look", "ask"]
        assert came.verdict is Verdict.STUCK

    def test_a_restart_between_two_looks_is_asked_for_an_answer(self) -> None:
        anew = page(engine(steps=1), started=1796023999.0)
        steps, came = played(look(page(STILL)), look(anew), asked=look(anew, GIVEN))
        assert steps == ["look", "wait", "look", "ask"]
        assert came.verdict is Verdict.IDLE

    def test_where_nobody_may_be_asked_a_suspicion_stays_one(self) -> None:
        _, came = played(*[look(page(STILL))] * 3)
        assert came.verdict is Verdict.SUSPECT
        assert came.why.endswith("it was not asked")

    def test_where_nobody_may_be_asked_an_idle_one_says_so(self) -> None:
        _, came = played(*[look(page(IDLE))] * 2)
        assert came.verdict is Verdict.IDLE
        assert came.why.endswith("it was not asked")

    def test_a_sleeping_one_is_left_alone(self) -> None:
        steps, came = played(look(page(engine(awake=0))))
        assert (steps, came.verdict) == (["look"], Verdict.ASLEEP)

    @pytest.mark.parametrize(
        ("seen", "verdict"),
        [
            (Page.REFUSED, Verdict.MISSING),
            (Page.FAILING, Verdict.DEGRADED),
            (Page.UNREADABLE, Verdict.UNREADABLE),
        ],
    )
    def test_without_a_page_one_look_is_all(self, seen: Page, verdict: Verdict) -> None:
        steps, came = played(without(seen))
        assert (steps, came.verdict) == (["look"], verdict)

    def test_a_page_that_came_too_late_is_read_once_more(self) -> None:
        steps, came = played(*[without(Page.SLOW)] * 2)
        assert (steps, came.verdict) == (["look", "wait", "look"], Verdict.UNPROVEN)
        steps, came = played(without(Page.SLOW), look(page(STILL)), look(page(IDLE | {"kv": 0.1})))
        assert came.verdict is Verdict.IDLE

    def test_a_load_that_says_when_it_began_has_a_limit(self) -> None:
        def loading(**ago: int) -> Checked:
            began = (AT - timedelta(**ago)).timestamp()
            return played(without(Page.UNAVAILABLE, started=f"{began}"))[1]

        assert loading(minutes=14).verdict is Verdict.LOADING
        assert loading(minutes=16).verdict is Verdict.OVERDUE

    @pytest.mark.parametrize("started", [None, "8812345678", "abc", "1e300", "nan"])
    def test_a_load_that_does_not_say_so_has_none(self, started: str | None) -> None:
        _, came = played(without(Page.UNAVAILABLE, started=started))
        assert came.verdict is Verdict.LOADING
        assert "no limit applies" in came.why


class TestTheReport:
    def test_names_the_witnesses_that_moved_by_engine(self) -> None:
        before = look(page(STILL, engine("1", steps=5))).engine
        after = look(page({**STILL, "kv": 0.6}, engine("1", steps=5))).engine
        assert moved(before, after) == {"0": {"kv"}, "1": set()}
        assert moved(None, after) == {}

    def test_is_one_line_whatever_the_server_says(self) -> None:
        report = Report(
            verdict=Verdict.DEGRADED,
            why="it says \x1b[2Jnothing\nmore",
            engine=None,
            moved={},
            requests_sent=1,
            readings=1,
            seconds=0.12,
        )
        assert report.line() == (
            "degraded: it says  [2Jnothing more [1 reading in 0.1 s, 1 request sent]"
        )
        assert json.loads(json.dumps(report.document()))["engine"] is None


def steady(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["check", *arguments])
    return done.exit_code, done.stderr


class TestWrongUsage:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["localhost:8000"], r"URL: localhost:8000 has no scheme: write http://localhost:8000"),
            (["fleet.example.toml"], r"URL: .* is a file: .* `steady validate`"),
            (["redis://localhost"], r"URL: begin it with http:// or https://"),
            (["http://x:99999"], r"URL: .*port"),
            (["http://x/metrics"], r"URL: /metrics is one of .* write the URL that lies before"),
            (["http://me:secret@x"], r"URL: .* name its variable with --api-key-env"),
            (["http://x", "--engine", "vlm"], r"--engine: 'vlm' .* one of .*vllm"),
            (["http://x", "--request", "poem"], r"--request: 'poem' .* one of completion"),
            (["http://x", "--request", "{ path"], r"--request: is no table .*: write it like {"),
            (["http://x", "--request", '{ path = "/a" }'], r"--request: body: Field required; wr"),
            (["http://x", "--request", '{path="a",body={}}'], r"--request: path: is no path"),
            (["http://x", "--request", '{path="/a",body={},x=1}'], r"--request: x: .*; write it"),
            (["http://x", "--wait", "5"], r"--wait: '5' is no duration"),
            (["http://x", "--wait", "1h"], r"--wait: 1h is out of range: choose from 100ms to 10m"),
            (["http://x", "--deadline", "1h"], r"--deadline: 1h is out of range: choose"),
            (["http://x", "--timeout", "1h"], r"--timeout: 1h is out of range: choose"),
            (["http://x", "--load-limit", "0s"], r"--load-limit: 0s is out of range: choose"),
            (["http://x", "--within", "70s"], r"--within: 1m10s is too short .* longer than 1m10s"),
            (["http://x", "--within", "soon"], r"--within: 'soon' is no duration"),
            (["http://x", "--api-key-env", "NOT_SET_AT_ALL"], r"--api-key-env: .* export the key"),
            ([], r"the following arguments are required: URL: `steady check --help` shows"),
            (["http://x", "http://y"], r"unrecognized arguments: http://y: `steady check --help`"),
            (["http://x", "--jso"], r"unrecognized arguments: --jso: `steady check --help` shows"),
            (["http://x", "--wait"], r"argument --wait: expected one argument: `steady check"),
            (["http://x", "--watch", "--json"], r"--watch .* leave out --json and --liveness"),
            (["http://x", "--watch", "--liveness"], r"--watch .* leave out --json and --liveness"),
        ],
    )
    def test_is_one_line_with_the_remedy_and_exit_code_2(
        self, arguments: list[str], said: str
    ) -> None:
        code, line = steady(*arguments)
        assert (code, line.count("\n")) == (Exit.WRONG_INPUT, 1)
        assert re.match(said, line), line
        assert "secret" not in line

    def test_is_the_same_as_a_command_of_its_own(self) -> None:
        """What a probe starts doesn't load the other commands."""
        for arguments in (["localhost:8000"], ["http://x", "--jso"], []):
            done = subprocess.run(
                [*STEADY, "check", *arguments],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert (done.returncode, done.stderr) == steady(*arguments)
            assert done.stdout == ""

    @pytest.mark.parametrize("more", [[], ["--liveness"]])
    def test_stays_wrong_for_a_liveness_probe(self, more: list[str]) -> None:
        assert steady("localhost:8000", *more)[0] == Exit.WRONG_INPUT

    def test_a_short_limit_to_a_load_is_no_mistake(self) -> None:
        code, _ = steady(f"http://127.0.0.1:{free_port()}", "--load-limit", "30s")
        assert code == Exit.UNREACHED


def test_the_options_make_the_source_that_a_fleet_file_would() -> None:
    given = {"kind": "sglang", "ca": "/ca.pem", "model": "m", "request": "chat", "deadline": "2m"}
    given["metrics_url"] = "https://x:9/metrics"
    made: EnginePlace = check_options.source("https://x/", given)
    in_file = EngineSource.model_validate({**given, "url": "https://x"})
    assert {name: getattr(made, name) for name in EngineSource.model_fields} == dict(in_file)
    plain = EngineSource(url="http://x", kind="engine")
    assert asdict(check_options.source("http://x", {})) == dict(plain)
    assert check_options.source("http://x", {"kind": None}).kind == "engine"
    typed = '{ path = "/v1/score", body = { text = ["Hi"], top = 1 } }'
    own = check_options.source("http://x", {"request": typed}).request
    assert own == CustomRequest(path="/v1/score", body={"text": ["Hi"], "top": 1})


def test_help_is_the_same_as_a_command_of_its_own_and_among_the_others() -> None:
    alone = subprocess.run([*STEADY, "check", "--help"], cwd=ROOT, capture_output=True, check=True)
    assert alone.stdout.decode() == CliRunner().invoke(app, ["check", "--help"]).stdout
    assert b"usage: steady check [-h]" in alone.stdout


#: A health check starts anew every few seconds, beside a server that needs the memory.
_HEAVY = {
    *("temporalio", "asyncssh", "redis", "apprise", "httpx"),
    *("rich", "typer", "click", "pydantic", "pydantic_core"),
}
_LOADED = """
import os, sys
end = os._exit
def ended(code):
    sys.stderr.write(" ".join(sys.modules))
    sys.stderr.flush()
    end(code)
os._exit = ended
from worker.entry import main
main()
"""
#: What a child used, seen from a small process: a child begins with the memory of who forked it.
_MEASURED = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=-3, stderr=-3)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def test_it_loads_nothing_heavy() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    argv = [sys.executable, "-c", _LOADED, "check", url]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == Exit.UNREACHED
    loaded = done.stderr.split()
    assert {each.partition(".")[0] for each in loaded} & _HEAVY == set()
    assert "worker.cli" not in loaded


@pytest.mark.anyio
async def test_it_is_small_and_starts_in_a_moment() -> None:
    """Under 60 MB, and 0.3 s beyond Python's own start, of which the bound here is tenfold."""
    async with sim_vllm(load=2) as server:
        _, python, _ = _measured([sys.executable, "-c", "pass"])
        code, seconds, mebibytes = _measured([*STEADY, "check", server.url, "--wait", "200ms"])
    assert code == Exit.DONE
    assert mebibytes < 60
    assert seconds < python + 3


def _measured(argv: list[str]) -> tuple[int, float, float]:
    """Exit code, seconds of CPU and MiB at the most."""
    launched = [sys.executable, "-c", _MEASURED, *argv]
    done = subprocess.run(launched, cwd=ROOT, capture_output=True, text=True, check=True)
    code, seconds, mebibytes = json.loads(done.stdout)
    return code, seconds, mebibytes
