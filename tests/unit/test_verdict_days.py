"""The scoreboard: each check by its own rule, and steady by the product's, on days with a truth."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import verdicts
from benchmarks.verdict_days import checks, score
from benchmarks.verdict_days.core import Halt, Shape
from benchmarks.verdict_days.days import (
    HOUR,
    KINDS,
    LIMIT,
    MINUTE,
    OTHERS,
    SILENT,
    Day,
    ask,
    hang,
    job,
    scenarios,
    slow,
)
from benchmarks.verdict_days.eyes import is_known
from benchmarks.verdict_days.score import CHECKS, STEADY, live
from benchmarks.verdict_days.server import Build, Event, Truth
from benchmarks.verdict_days.steady import Steady, Watch
from benchmarks.verdict_days.traffic import ordinary
from benchmarks.verdict_days.world import World
from fleet.policy import Policy

BAIT = "batch job of 2 to 4 requests, 8 servers"
CHAT_45, CHAT_10, HEALTH, OUTPUT, STEPS, ERRORS, _ = CHECKS


def under(check: score.Check, *script: Event, until: float = 2 * HOUR, **build: object) -> Truth:
    world = World(Build(**build), script)  # type: ignore[arg-type]
    check.start(world)
    world.run(until)
    return world.server.truth


def of_the_others() -> list[Day]:
    return [day for day in scenarios() if day.build.kind in OTHERS and day.group != SILENT]


def first_of_each_group() -> list[Day]:
    """The scenarios once each; every kind of engine gets its turn."""
    groups: dict[str, list[Day]] = {}
    for day in (day for day in scenarios() if day.group not in (LIMIT, SILENT)):
        groups.setdefault(day.group, []).append(day)
    return [days[at % len(days)] for at, days in enumerate(groups.values())]


@pytest.mark.parametrize("day", first_of_each_group(), ids=lambda day: day.group)
def test_steady_restarts_nobody_healthy_misses_no_hang_and_asks_nobody_who_moves(day: Day) -> None:
    hours = min(day.hours, 2.5)
    truth = live(replace(day, hours=hours), STEADY)
    assert truth.wrong == []
    assert truth.missed == 0
    assert truth.true_restarts == truth.hangs
    assert truth.despite_progress == 0
    # Under load two sweeps see it, and it must last three minutes. While idle a probe comes first,
    # and where no page comes for five minutes, nobody can see it sooner.
    most = 660 if "idle" in day.group or "pages take" in day.group else 300
    assert all(180 <= seconds <= most for seconds in truth.detected)


@pytest.mark.parametrize(
    "group",
    [
        *("a lone 128k prompt, read for four minutes", "a first step of 100 s, gauges at zero"),
        *("GC pauses of 9 s", "108 s of graph capture at the first request"),
        *("pages that take 8 s, for ten minutes", "restarted between two readings"),
        *("a hang in decode", "a hang in prefill", "frozen while idle, nobody comes"),
        "a hang while its pages take 8 s, for five minutes",
    ],
)
def test_what_happens_to_any_server_happens_to_every_kind(group: str) -> None:
    days = [day for day in scenarios() if day.group == group]
    kinds = {day.build.kind for day in days}
    assert kinds - set(OTHERS) == set(KINDS)
    assert kinds - set(KINDS) in (set(), set(OTHERS), set(OTHERS) - {"trtllm"})
    truths = [live(replace(day, hours=min(day.hours, 2)), STEADY) for day in days]
    assert [(each.wrong, each.missed) for each in truths] == [([], 0)] * len(days)
    assert [each.true_restarts for each in truths] == [
        int("hang" in group or "frozen" in group)
    ] * (len(days))


@pytest.mark.parametrize("day", of_the_others(), ids=lambda day: f"{day.build.kind}: {day.group}")
def test_the_engines_that_fewer_people_run_are_judged_right(day: Day) -> None:
    truth = live(day, STEADY)
    assert (truth.wrong, truth.missed, truth.true_restarts) == ([], 0, truth.hangs)
    assert truth.despite_progress == 0
    most = 660 if "idle" in day.group else 300
    assert all(180 <= seconds <= most for seconds in truth.detected)


@pytest.mark.parametrize(("kind", "window"), [*zip(KINDS, (0, 0, 35, 60), strict=True)])
def test_the_proof_is_there_after_the_looks_the_waits_and_the_request(
    kind: str, window: float
) -> None:
    """In seconds: a look every 30, two waits of 15, a deadline of 60, or what its page needs."""
    busy, frozen = job(60, 6, 900, 700), hang(HOUR / 2 + 8, Halt.FROZEN)
    truth = under(Steady(), busy, frozen, until=HOUR, kind=kind)
    (proved,) = truth.proved
    stood = 30 * math.ceil(max(30, window) / 30)
    assert proved <= 30 + stood + max(30, window) + max(60, window) + 5


def test_what_steady_does_not_see_stays_in_the_table() -> None:
    days = [day for day in scenarios() if day.group == LIMIT]
    assert [(live(day, STEADY).missed, live(day, STEADY).false_restarts) for day in days] == [
        (1, 0)
    ]


def test_where_only_ends_of_requests_show_a_hang_is_left_to_a_person() -> None:
    days = [day for day in scenarios() if day.group == SILENT]
    truths = [live(day, STEADY) for day in days]
    assert [(each.missed, each.hangs, each.false_restarts) for each in truths] == [(1, 1, 0)] * 4


def test_where_only_ends_of_requests_show_an_operator_may_have_hangs_restarted() -> None:
    for day in (day for day in scenarios() if day.group == SILENT):
        world = World(day.build, day.script)
        Watch(world, Policy(restart_unproven=True))
        world.run(day.hours * HOUR)
        truth = world.server.truth
        assert (truth.missed, truth.true_restarts, truth.wrong) == (0, 1, [])


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_an_idle_rank_that_froze_beside_one_that_works_is_found_and_the_other_never_asked(
    kind: str,
) -> None:
    group = "one rank frozen while idle, the other at work"
    (day,) = [day for day in scenarios() if (day.group, day.build.kind) == (group, kind)]
    truth = live(day, STEADY)
    assert (truth.missed, truth.false_restarts, truth.true_restarts) == (0, 0, 1)
    assert (truth.to_busy, truth.despite_progress) == (0, 0)


def test_the_chat_check_restarts_all_eight_healthy_servers_of_the_batch_job() -> None:
    days = [day for day in scenarios() if day.group == BAIT]
    assert len(days) == 8
    for day in days:
        short = replace(day, hours=1)
        assert live(short, CHAT_45).false_restarts >= 1
        assert live(short, CHAT_10).false_restarts >= 1
        steady = live(short, STEADY)
        assert (steady.false_restarts, steady.to_busy) == (0, 0)


def test_an_ordinary_day_is_the_same_each_time_and_its_hang_is_found() -> None:
    moments = [[event.at for event in ordinary(3).script] for _ in range(2)]
    assert moments[0] == moments[1]
    truth = live(ordinary(3), STEADY)
    assert (truth.hangs, truth.true_restarts, truth.false_restarts) == (1, 1, 0)


def test_the_short_cut_for_pages_that_stay_the_same_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle = [day for day in scenarios() if "nobody comes" in day.group]
    days = [replace(day, hours=2) for day in (ordinary(0), *idle[::2])]
    quick = [live(day, STEADY) for day in days]
    plain = Watch._observed

    def slowly(self: Watch, *seen: object) -> object:
        self._last = None
        return plain(self, *seen)  # type: ignore[arg-type]

    monkeypatch.setattr(Watch, "_observed", slowly)
    assert [live(day, STEADY) for day in days] == quick


def test_every_kind_of_engine_can_be_judged() -> None:
    assert all(is_known(day.build.kind) for day in scenarios())


def test_a_chat_request_waits_in_line_and_five_failures_restart() -> None:
    full = [job(0, 4, 10, 200_000)]
    truth = under(checks.CHAT_45, *full, until=25 * MINUTE + 50, shape=Shape(slots=4))
    assert truth.requests == 5
    assert truth.to_busy == 5
    assert truth.wrong == ["1545 s: restarted while working"]
    assert under(checks.CHAT_45, *full, until=25 * MINUTE, shape=Shape(slots=4)).wrong == []


def test_an_answer_in_time_sets_the_chat_check_back() -> None:
    gap = [job(0, 4, 10, 30_000), Event(20 * MINUTE, lambda server: server.end_jobs())]
    truth = under(checks.CHAT_45, *gap, until=40 * MINUTE, shape=Shape(slots=4))
    assert truth.false_restarts == 0


def test_one_failure_is_enough_for_the_hasty_chat_check() -> None:
    long = ask(50, 16_384, 10)
    one_step = Shape(chunk=16_384, per_token=30 / 16_384)
    assert under(checks.CHAT_10, long, until=200, shape=one_step).false_restarts == 1


def test_health_sees_no_hang_and_kills_who_is_slow_to_say_that_it_lives() -> None:
    hung = under(checks.HEALTH, job(0, 2, 10, 500), hang(HOUR / 2, Halt.FROZEN))
    assert (hung.missed, hung.false_restarts) == (1, 0)
    assert under(checks.HEALTH, *slow(HOUR, HOUR + 15, 3)).false_restarts == 0
    assert under(checks.HEALTH, *slow(HOUR, HOUR + 35, 3)).false_restarts == 1


def test_health_gives_a_load_ten_minutes() -> None:
    assert under(checks.HEALTH, load=580, loading_first=True).false_restarts == 0
    assert under(checks.HEALTH, load=620, loading_first=True, until=700).false_restarts == 1


@pytest.mark.parametrize(
    ("check", "kind", "false"),
    [
        (checks.OUTPUT_TOKENS, "vllm", 1),
        (checks.OUTPUT_TOKENS, "llamacpp", 1),
        (checks.STEP_COUNTER, "vllm", 1),
        (checks.STEP_COUNTER, "vllm-v0", 0),
        (checks.STEP_COUNTER, "llamacpp", 0),
    ],
)
def test_a_long_prompt_fools_who_looks_at_one_counter(
    check: score.Check, kind: str, false: int
) -> None:
    reader = Shape(per_token=240 / 131_072, blocks=65536)
    truth = under(check, ask(60, 131_072, 10), until=290, kind=kind, shape=reader)
    assert truth.false_restarts == false


def test_the_step_counter_of_v0_hides_a_hang_and_that_of_v1_shows_it() -> None:
    script = [job(0, 2, 10, 500), hang(HOUR / 2, Halt.FROZEN)]
    assert under(checks.STEP_COUNTER, *script, kind="vllm-v0").missed == 1
    found = under(checks.STEP_COUNTER, *script, kind="vllm")
    assert (found.missed, found.true_restarts) == (0, 1)


def test_who_adds_ranks_up_does_not_see_the_stuck_one() -> None:
    script = [job(0, 2, 10, 500), hang(HOUR / 2, Halt.FROZEN, 0)]
    assert under(checks.STEP_COUNTER, *script, ranks=2).missed == 1


def test_a_count_of_500s_blames_the_server_for_its_client() -> None:
    def error(at: float) -> Event:
        def act(server: object) -> None:
            server.errors += 1  # type: ignore[attr-defined]

        return Event(at, act)

    assert under(checks.ERRORS, *(error(600 + n) for n in range(9))).false_restarts == 0
    assert under(checks.ERRORS, *(error(600 + n) for n in range(10))).false_restarts == 1


def test_steady_leaves_a_load_alone_that_lasts_within_its_limit() -> None:
    truth = under(Steady(), load=14 * MINUTE, loading_first=True)
    assert (truth.false_restarts, truth.requests > 0) == (0, True)


def test_the_page_has_a_row_for_each_check_and_each_scenario() -> None:
    page = (Path(__file__).parents[2] / "docs" / "why-not-a-chat-request.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| ")}
    assert set(CHECKS) <= set(rows)
    groups = {day.group for day in (*scenarios(), ordinary(0))}
    assert groups <= set(rows)


def test_the_command_prints_what_was_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    day = next(day for day in scenarios() if day.group == BAIT)
    hung = Day("a hang", Build(), [job(0, 2, 10, 500), hang(HOUR / 3, Halt.FROZEN)], hours=1.5)
    monkeypatch.setattr(
        verdicts, "measure", lambda *_: score.compare([replace(day, hours=1), hung])
    )
    monkeypatch.setattr(sys, "argv", ["verdicts", "--quick", "--json"])
    verdicts.main()
    figures = json.loads(capsys.readouterr().out)["checks"]
    assert set(figures) == set(CHECKS)
    for each in figures.values():
        assert {"false_restarts", "missed_hangs", "requests_to_busy", "seconds_to_detect"} <= set(
            each
        )
        assert set(each["scenarios"]) == {BAIT, "a hang"}
    assert figures[CHAT_45]["scenarios"][BAIT]["false_restarts"] >= 1
    assert figures[STEADY]["false_restarts"] == figures[STEADY]["missed_hangs"] == 0
    assert figures[STEADY]["hangs"] == 1
    assert figures[HEALTH]["missed_hangs"] == 1
