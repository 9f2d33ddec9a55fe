"""Which engines a probe asks."""

from datetime import UTC, datetime, timedelta

from fleet.contracts.sweep import SweepReadings, SweepResult
from fleet.engines.page import read_page
from fleet.engines.probing import carried, whom
from fleet.engines.vllm import VLLM
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.sweep import judge_shard
from tests.parts.vllm_pages import engine, page

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EVERY = timedelta(minutes=5)


def seen(name: str, *engines: dict[str, float | str], minutes: float = 0) -> Reading:
    reading, _ = read_page(page(*engines), VLLM)
    return Reading(server=name, at=T0 + timedelta(minutes=minutes), engine=reading)


def shard(*readings: Reading) -> SweepReadings:
    return SweepReadings(
        interval=EVERY,
        version=1,
        readings=list(readings),
        policies=[Policy()],
        policy_of={reading.server: 0 for reading in readings},
    )


def after(*readings: Reading) -> SweepResult:
    return judge_shard(0, readings[0].at, "run", shard(*readings), None).result


def asked(now: SweepReadings, before: SweepResult | None) -> list[str]:
    return [request.server for request in whom(now, before)]


def test_only_idle_engines_are_asked() -> None:
    now = shard(
        seen("idle", engine(steps=5)),
        seen("busy", engine(running=1, steps=5)),
        seen("waiting", engine(waiting=1, steps=5)),
        seen("asleep", engine(steps=5, awake=0)),
    )
    assert asked(now, None) == ["idle"]
    assert whom(now, None)[0].since == now.readings[0].engine


def test_an_idle_engine_that_has_worked_since_the_last_probe_is_not_asked() -> None:
    before = after(seen("worked", engine(steps=5)), seen("still", engine(steps=5)))
    now = shard(
        seen("worked", engine(steps=6), minutes=5), seen("still", engine(steps=5), minutes=5)
    )
    assert asked(now, before) == ["still"]


def test_of_two_ranks_one_that_has_not_moved_is_enough() -> None:
    before = after(seen("dp", engine("0", steps=5), engine("1", steps=5)))
    now = shard(seen("dp", engine("0", steps=9), engine("1", steps=5), minutes=5))
    assert asked(now, before) == ["dp"]


def test_what_is_known_of_a_server_that_was_left_alone_is_kept_and_of_a_removed_one_not() -> None:
    before = after(seen("a", engine()), seen("healed", engine()), seen("removed", engine()))
    now = after(seen("a", engine(), minutes=5))
    kept = carried(now, before, ["a", "healed"])
    assert set(kept.servers) == {"a", "healed"}
    assert kept.servers["healed"] == before.servers["healed"]
    assert kept.servers["a"] == now.servers["a"]
