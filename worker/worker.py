"""The worker: every workflow and activity of steady on one task queue."""

import asyncio
from collections.abc import Sequence

import structlog
from temporalio.client import Client
from temporalio.worker import Interceptor, Worker

from activities.alert_history import AlertHistory
from activities.alerts import AlertActivities
from activities.asking import AskActivities
from activities.drill import DrillActivities
from activities.gateway import GatewayActivities
from activities.guards import GuardActivities
from activities.host import HostActivities
from activities.ledgers import GuardReader
from activities.policies import PolicyActivities, PolicyReader
from activities.probing import ProbeActivities
from activities.readings import ReadingActivities
from activities.record import RecordActivities
from activities.reports import ReportActivities
from activities.schedules import ScheduleActivities
from activities.storms import StormActivities
from worker.attributes import register_search_attributes
from worker.connection import connect
from worker.evidence import retention
from worker.logs import set_up_logging
from worker.runner import PunctualRunner
from worker.settings import Settings
from worker.state import made, noted_store
from worker.stopping import stop_event
from worker.vitals import Stamps
from worker.watch import watch
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

__all__ = ["build_worker", "connect", "run_worker"]

_log = structlog.get_logger(__name__)

#: The SDK aborts the process now and then if the loop ends at once after a worker's shutdown.
SETTLE_SECONDS = 0.2


def build_worker(
    client: Client, settings: Settings, interceptors: Sequence[Interceptor] = ()
) -> Worker:
    """The worker, not yet running. A worker that was told to stop lets activities finish."""
    policies = PolicyReader(client)
    readings = ReadingActivities(policies, settings.embedded_store, GuardReader(client))
    host = HostActivities(policies, settings.state_dir, retention(client, settings))
    guards = GuardActivities(client)
    storms = StormActivities(client, policies)
    alerts = AlertActivities(policies, AlertHistory(client))
    drills = DrillActivities(policies, client)
    gateways = GatewayActivities()
    return Worker(
        client,
        task_queue=settings.task_queue,
        workflows=[
            HealthSweep,
            Remediation,
            ServerGuard,
            HostGuard,
            StormGuard,
            FleetWorkflow,
            Alert,
            AskEngine,
            Drill,
            ReadingRecord,
            ProbeSweep,
        ],
        activities=[
            PolicyActivities(policies).present_policy,
            readings.read_shard,
            readings.read_server,
            host.inspect_host,
            host.restart_server,
            host.stop_server,
            host.gpu_holders,
            host.start_server,
            host.collect_evidence,
            guards.open_incident,
            guards.take_budget,
            guards.give_back,
            guards.close_incident,
            guards.found_guards,
            storms.ask_slot,
            storms.release_slot,
            storms.report_share,
            storms.look_at_slots,
            guards.report_starts,
            ScheduleActivities(client).reconcile,
            RecordActivities(client).keep_readings,
            ReportActivities(client).report,
            AskActivities(policies).ask_engine,
            ProbeActivities(policies, client).read_engines,
            alerts.plan_alert,
            alerts.deliver,
            gateways.drain_server,
            gateways.undrain_server,
            drills.survey_server,
            drills.freeze_server,
            drills.thaw_server,
        ],
        workflow_runner=PunctualRunner(),
        graceful_shutdown_timeout=settings.graceful_shutdown,
        interceptors=interceptors,
    )


def run_worker(settings: Settings) -> int:
    """Work until SIGTERM or SIGINT, and return 0; a worker that stops unasked returns 1.

    Raises:
        SettingError: the state folder, where evidence is kept, can't be used.
        SetupError: there is no Temporal server.
    """
    made(settings.state_dir)
    set_up_logging(settings)
    return asyncio.run(_work(settings))


async def _work(settings: Settings) -> int:
    client = await connect(settings, within=settings.connect_within)
    if settings.embedded_store is None:
        store = noted_store(settings.state_dir)
        settings = settings.model_copy(update={"embedded_store": store})
    attributes = await register_search_attributes(client)
    (_log.info if attributes.available else _log.warning)(attributes.line)
    with stop_event() as told_to_stop:
        _log.info("working", task_queue=settings.task_queue, namespace=client.namespace)
        async with watch(client, settings) as vitals:
            worker = build_worker(client, settings, [Stamps(vitals)])
            code = await work_until(told_to_stop, worker)
    _log.info("stopped", exit_code=code)
    await asyncio.sleep(SETTLE_SECONDS)
    return code


async def work_until(told_to_stop: asyncio.Event, worker: Worker) -> int:
    """Run ``worker`` until the event, then let it finish; 1 where it ended by itself."""
    working = asyncio.create_task(worker.run())
    stopping = asyncio.create_task(told_to_stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not told_to_stop.is_set():
        problem = working.exception()
        _log.error("the worker ended unasked", problem=repr(problem))
        return 1
    await worker.shutdown()
    await working
    return 0
