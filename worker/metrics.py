"""What ``/metrics`` shows, in Prometheus' words.

What is counted of incidents and alerts is counted from the runs that Temporal keeps, so a worker
that was restarted goes on with the same numbers, and every worker has them: take the maximum over
workers, not the sum. What only this process knows says so.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from fleet.contracts.remediation import Outcome, Phase
from fleet.contracts.storm import StormState
from fleet.verdicts import Verdict
from worker.blocked import REASONS
from worker.census import UNKNOWN, Census, ClosedIncident
from worker.sweeps import Shard
from worker.vitals import Vitals

# They would say when this process began, of what Temporal has counted since long before.
disable_created_metrics()  # type: ignore[no-untyped-call]

_OURS = "This worker process only: "
_SECONDS = (5, 10, 30, 60, 120, 180, 240, 300, 450, 600, 900, 1800, 3600, 7200, 14400, 43200)
#: What may hold a restart back: others that run now, or a fleet-wide suspicion.
_BLOCKS = ("limit", "suspicion")
_HEALED = frozenset({Outcome.RESOLVED, Outcome.RECOVERED})

M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """Filled in the event loop, rendered in any thread."""

    def __init__(self, vitals: Vitals) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._lock = threading.Lock()
        self._detected: dict[str, None] = {}
        self._restarted: dict[str, None] = {}
        self._shards, self._refusals = _Shards(), _Refusals()
        ours = (_Process(vitals), self._shards, self._refusals)
        for collector in (ProcessCollector(registry=None), *ours):
            self.registry.register(collector)
        self._declare()

    def _declare(self) -> None:
        """Every name with its meaning; what has a known set of labels is there from the start."""
        self._servers = self._new(Gauge, "servers", "Servers by confirmed verdict.", "verdict")
        self._open = self._new(Gauge, "incidents_open", "Open incidents by phase.", "phase")
        self._closed = self._new(
            Counter, "incidents", "Runs of remediations that ended, by outcome.", "outcome"
        )
        self._left = self._new(
            Gauge, "restart_budget_left", "Restarts left in the budget of a server.", "server"
        )
        self._limit = self._new(
            Gauge, "restart_budget_limit", "Restarts that the budget of a server has.", "server"
        )
        self._slots = self._new(Gauge, "restart_slots_held", "Restarts that run now.")
        self._blocked = self._new(
            Gauge, "restarts_blocked", "Restarts that wait, by what holds them back.", "by"
        )
        self._suspicion = self._new(
            Gauge, "fleet_suspicion", "1 while a fleet-wide suspicion blocks every restart."
        )
        self._held_back = self._new(
            Gauge,
            "servers_held_back",
            "Servers proved bad that are kept from their restart now.",
            "by",
        )
        self._unattended = self._new(
            Gauge, "servers_unattended", "Servers that are bad, or not seen, and nobody acts."
        )
        self._waiting = self._new(Gauge, "alerts_waiting", "Alerts that are on their way.")
        self._alerts = self._new(
            Counter, "alerts", "Alerts that ended: delivered, or given up.", "result"
        )
        self._detect = self._time("time_to_detect", "until its remediation began.")
        self._restart = self._time("time_to_restart", "until its first restart was booked.")
        self._recover = self._time("time_to_recover", "until it was resolved or had recovered.")
        self._pings = self._new(
            Counter, "dead_mans_switch_pings", f"{_OURS}pings of the dead man's switch.", "result"
        )
        _zero(self._servers, (*Verdict, UNKNOWN))
        _zero(self._open, (*Phase,))
        _zero(self._closed, (*Outcome,))
        _zero(self._blocked, _BLOCKS)
        _zero(self._held_back, REASONS)
        _zero(self._alerts, ("delivered", "undelivered"))
        _zero(self._pings, ("delivered", "failed"))

    def _new(self, kind: Callable[..., M], name: str, meaning: str, *labels: str) -> M:
        return kind(f"steady_{name}", meaning, labels, registry=self.registry)

    def _time(self, name: str, until: str) -> Histogram:
        return Histogram(
            f"steady_{name}_seconds",
            f"From the first bad observation of an incident {until}",
            buckets=_SECONDS,
            registry=self.registry,
        )

    def show(self, census: Census, shards: Iterable[Shard]) -> None:
        """Put a look in place of the one before; what could not be read stays as it was."""
        with self._lock:
            self._shards.shards = tuple(shards)
            if census.verdicts is not None:
                _replace(self._servers, census.verdicts, (*Verdict, UNKNOWN))
            if census.phases is not None:
                _replace(self._open, census.phases, (*Phase,))
            if census.budgets:
                _replace(self._left, {name: left for name, (left, _) in census.budgets.items()})
                _replace(self._limit, {name: limit for name, (_, limit) in census.budgets.items()})
                self._refusals.by_server = dict(census.refused)
                self._refusals.by_machine = dict(census.refused_on)
            if census.storm is not None:
                self._show_storm(census.storm)
            if census.blocked is not None:
                _replace(self._held_back, census.blocked, REASONS)
            if census.unattended is not None:
                self._unattended.set(census.unattended)
            if census.waiting is not None:
                self._waiting.set(census.waiting)
            for delivered in census.alerts:
                self._alerts.labels("delivered" if delivered else "undelivered").inc()
            for incident in census.closed:
                self._count(incident)

    def _show_storm(self, storm: StormState) -> None:
        suspected, waiting = storm.suspicion is not None, len(storm.waiting)
        self._slots.set(len(storm.holders))
        self._suspicion.set(suspected)
        _replace(self._blocked, {_BLOCKS[suspected]: waiting}, _BLOCKS)

    def pinged(self, delivered: bool) -> None:
        self._pings.labels("delivered" if delivered else "failed").inc()

    def render(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type, as the ``Accept`` header wants it."""
        encode, kind = choose_encoder(accept)
        with self._lock:
            return encode(self.registry), kind

    def _count(self, ended: ClosedIncident) -> None:
        """An incident may have several runs: it is detected and first restarted only once."""
        status = ended.status
        self._closed.labels(str(status.outcome or UNKNOWN)).inc()
        if status.incident is None or status.since is None:
            return
        if status.detected_at is not None and _is_first(status.incident, self._detected):
            self._detect.observe(_seconds(status.since, status.detected_at))
        if ended.restarted_at is not None and _is_first(status.incident, self._restarted):
            self._restart.observe(_seconds(status.since, ended.restarted_at))
        if status.closed_at is not None and status.outcome in _HEALED:
            self._recover.observe(_seconds(status.since, status.closed_at))


class _Shards(Collector):
    """The sweeps; their age goes on growing where nothing can be read any more."""

    def __init__(self) -> None:
        self.shards: tuple[Shard, ...] = ()

    def collect(self) -> Iterable[Metric]:
        now, label = datetime.now(UTC), ["shard"]
        age = GaugeMetricFamily(
            "steady_sweep_age_seconds",
            "Since the last sweep of a shard that ended; where none has, since it was scheduled.",
            labels=label,
        )
        every = GaugeMetricFamily(
            "steady_sweep_interval_seconds", "How often a shard is to be swept.", labels=label
        )
        sweeps = CounterMetricFamily(
            "steady_sweeps", "Sweeps that the schedule of a shard has started.", labels=label
        )
        skipped = CounterMetricFamily(
            "steady_sweeps_skipped",
            "Sweeps that were not started: the one before still ran, or Temporal was away.",
            labels=label,
        )
        for shard in self.shards:
            name = [str(shard.number)]
            age.add_metric(name, shard.age(now).total_seconds())
            every.add_metric(name, shard.every.total_seconds())
            sweeps.add_metric(name, shard.taken)
            skipped.add_metric(name, shard.skipped)
        return [age, every, sweeps, skipped]


class _Refusals(Collector):
    """Counted by the ledgers themselves, so the count is shown and not kept here."""

    def __init__(self) -> None:
        self.by_server: dict[str, int] = {}
        self.by_machine: dict[str, int] = {}

    def collect(self) -> Iterable[Metric]:
        refused = CounterMetricFamily(
            "steady_restarts_refused",
            "Restarts that the budget of a server has refused.",
            labels=["server"],
        )
        for server, count in self.by_server.items():
            refused.add_metric([server], count)
        on_machine = CounterMetricFamily(
            "steady_machine_restarts_refused",
            "Restarts that the capped total of a machine has refused.",
            labels=["machine"],
        )
        for machine, count in self.by_machine.items():
            on_machine.add_metric([machine], count)
        return [refused, on_machine]


class _Process(Collector):
    """What only this process knows of itself."""

    def __init__(self, vitals: Vitals) -> None:
        self._vitals = vitals

    def collect(self) -> Iterable[Metric]:
        health = self._vitals.diagnose()
        well = GaugeMetricFamily(
            "steady_worker_healthy", f"{_OURS}1 while /health answers 200.", value=health.is_well
        )
        ages = GaugeMetricFamily(
            "steady_worker_sign_age_seconds",
            f"{_OURS}since each sign of life was last seen; see /health.",
            labels=["sign"],
        )
        finished = CounterMetricFamily(
            "steady_worker_activities",
            f"{_OURS}activities that ended here.",
            labels=["activity", "result"],
        )
        for sign, seconds in health.ages.items():
            if seconds is not None:
                ages.add_metric([sign], seconds)
        for names, count in self._vitals.finished_activities().items():
            finished.add_metric(names, count)
        return [well, ages, finished]


def _zero(metric: Counter | Gauge, labels: Iterable[str]) -> None:
    for label in labels:
        metric.labels(str(label))


def _replace(gauge: Gauge, values: Mapping[str, int], always: Iterable[str] = ()) -> None:
    gauge.clear()
    _zero(gauge, always)
    for label, value in values.items():
        gauge.labels(label).set(value)


#: A run of an incident that began so many incidents ago is taken for the first.
_REMEMBERED = 10_000


def _is_first(incident: str, known: dict[str, None]) -> bool:
    if incident in known:
        return False
    known[incident] = None
    if len(known) > _REMEMBERED:
        del known[next(iter(known))]
    return True


def _seconds(begin: datetime, end: datetime) -> float:
    return max(0.0, (end - begin).total_seconds())
