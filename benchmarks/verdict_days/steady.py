"""steady itself on virtual time: its own readings, judge, probes, reports and remediations.

Only what carries them is left out: Temporal, HTTP and SSH.
"""

from dataclasses import dataclass
from datetime import timedelta

from benchmarks.verdict_days.eyes import NAME, Eyes
from benchmarks.verdict_days.healing import Healing
from benchmarks.verdict_days.world import Process, World
from fleet.contracts.sweep import Report, SweepReadings, SweepResult
from fleet.durations import parse
from fleet.engines.probing import carried, whom
from fleet.engines.reading import EngineReading, Page
from fleet.findings import Finding
from fleet.judge import Memory
from fleet.observing import observe
from fleet.policy import Policy
from fleet.readings import Reading
from fleet.sweep import judge_shard
from fleet.verdicts import FOR_REMEDIATION, GOOD

INTERVAL, PROBE_EVERY = parse("30s"), parse("5m")


@dataclass(frozen=True)
class Steady:
    """With the defaults of a fleet file, but for the time that the server may load."""

    load_limit: timedelta = timedelta(minutes=15)

    def start(self, world: World) -> None:
        Watch(world, Policy(load_limit=self.load_limit))


class Watch:
    """One server under steady's care."""

    def __init__(self, world: World, policy: Policy) -> None:
        self._policy = policy
        self._eyes = Eyes(world)
        self._healing = Healing(world, self._eyes, policy)
        self._memory: Memory | None = None
        self._probed: SweepResult | None = None
        self._last: tuple[EngineReading | None, Memory, Finding] | None = None
        world.spawn(self._sweep(), 7.0)
        world.spawn(self._probe(), 11.0)

    def _sweep(self) -> Process:
        while True:
            reading, before = self._eyes.look(), self._memory
            self._memory, finding = self._observed(reading, before)
            is_well = self._memory.verdict in GOOD and finding.verdict in GOOD
            was_well = before is None or before.verdict in GOOD
            if not (is_well and was_well):
                # Only then there may be something to report.
                servers = {NAME: before} if before is not None else {}
                last = SweepResult(shard=0, at=reading.at, servers=servers)
                self._pass_on(reading, INTERVAL, last)
            if is_well:
                self._healing.held = False
            yield INTERVAL.total_seconds()

    def _observed(self, reading: Reading, before: Memory | None) -> tuple[Memory, Finding]:
        """The product's judgement. Where the very page of the last two looks is seen once more,
        and all was well, it is the last one's, which saves most of an idle day's time.
        """
        engine, last = reading.engine, self._last
        is_old = last is not None and engine is last[0] and before is last[1]
        if is_old and last is not None and before is not None and last[2].verdict in GOOD:
            known = before.model_copy(update={"at": reading.at})
            self._last = (engine, known, last[2])
            return known, last[2]
        memory, finding = observe(reading, before, self._policy, INTERVAL)
        is_same = before is not None and before.engine == memory.engine
        self._last = (engine, memory, finding) if is_same else None
        return memory, finding

    def _probe(self) -> Process:
        while True:
            reading = self._eyes.look()
            is_page = reading.engine is not None and reading.engine.page is Page.OK
            if is_page and not self._healing.is_open:
                for request in whom(self._seen(reading, PROBE_EVERY), self._probed):
                    reading = (yield from self._eyes.ask(request)) or reading
                self._probed = self._pass_on(reading, PROBE_EVERY, self._probed)
            else:
                left_alone = SweepResult(shard=0, at=reading.at)
                self._probed = carried(left_alone, self._probed, [NAME])
            yield PROBE_EVERY.total_seconds()

    def _pass_on(
        self, reading: Reading, interval: timedelta, before: SweepResult | None
    ) -> SweepResult:
        judged = judge_shard(0, reading.at, "run", self._seen(reading, interval), before)
        for report in judged.reports:
            self._report(report)
        return judged.result

    def _report(self, report: Report) -> None:
        """What ``activities/reports.py`` does: start a remediation, or tell the open one."""
        seen, healing, now = report.observation, self._healing, self._eyes.now
        if healing.is_open:
            healing.roused |= report.good
            return
        if report.good or seen.verdict not in FOR_REMEDIATION or healing.held:
            return
        if healing.cooldown is not None and now < healing.cooldown:
            return
        if report.quiet is not None and healing.calmed is not None:
            if now - healing.calmed < report.quiet:
                return
            seen = seen.model_copy(update={"since": max(seen.since, healing.calmed)})
        healing.open(seen)

    def _seen(self, reading: Reading, interval: timedelta) -> SweepReadings:
        return SweepReadings(
            interval=interval,
            version=1,
            readings=[reading],
            policies=[self._policy],
            policy_of={NAME: 0},
            follows_up=True,
        )
