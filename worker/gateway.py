"""``steady gateway``: the data plane as a process of its own. It needs no Temporal."""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import structlog
import uvloop

from activities.secrets import SecretError, resolve
from fleet.config import Fleet
from fleet.served import Door, doors, with_providers
from gateway.control import Control, Keep
from gateway.core import Core
from gateway.kept import Kept
from gateway.limits import limits
from gateway.metrics import Metrics
from gateway.plane import Local
from gateway.server import Gateway
from worker.errors import SettingError, SetupError
from worker.garbage import leave_loaded_alone
from worker.gateway_api import Api
from worker.gateway_group import Group
from worker.gateway_port import reserved
from worker.gateway_state import StateFile, state_file
from worker.listener import Pages, listening
from worker.loading import load
from worker.logs import set_up_logging
from worker.open_files import raise_open_files
from worker.settings import Settings
from worker.stopping import stop_event, unless
from worker.vitals import Health

_log = structlog.get_logger(__name__)

#: The event loop ticks ten times a second; so long without a tick is a fault.
_STANDS_STILL = 5.0
_SHORTEST_TOKEN = 16


def run_gateway(path: Path, settings: Settings) -> int:
    """Serve the endpoints of a fleet file until SIGTERM or SIGINT, and return 0.

    Raises:
        FleetFileError: the file has mistakes.
        SettingError: it has no endpoints, or a secret that it names can't be read.
        SetupError: an address can't be listened on.
    """
    fleet = load(path, files_are_here=False)
    if not fleet.endpoints:
        raise SettingError(f"{path} has no endpoints: add one, beginning with [endpoints.NAME]")
    kinds = {name: server.source.kind for name, server in fleet.servers.items()}
    endpoints = with_providers(fleet.endpoints, kinds)
    fleet = fleet.model_copy(update={"endpoints": endpoints})
    secrets = _secrets(fleet)
    _check_folders(fleet)
    token = _admin_token(fleet)
    set_up_logging(settings)
    raise_open_files(fleet)
    with _state(settings, token) as state:
        if fleet.gateway.processes > 1:
            return asyncio.run(_together(fleet, secrets, token, state))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_alone(fleet, secrets, token, state))


@contextmanager
def _state(settings: Settings, token: str | None) -> Iterator[StateFile | None]:
    """Where what is set is kept; none where nothing can be set."""
    if token is None:
        yield None
        return
    with state_file(settings.state_dir) as file:
        yield file


def _restored(fleet: Fleet, state: StateFile | None) -> tuple[Kept, Keep]:
    """What was set before, and where to keep what is set."""
    if state is None:
        return Kept(), lambda _: None
    kept, gone = state.read().fitting(fleet.endpoints)
    for each in gone:
        _log.warning("what was set no longer fits the fleet file, and is dropped", what=each)
    return kept.at(datetime.now(UTC)), state.write


async def _alone(
    fleet: Fleet,
    secrets: Mapping[tuple[str, str], str],
    token: str | None,
    state: StateFile | None,
) -> int:
    """The whole gateway in this process."""
    gateway = Gateway(fleet.endpoints, limits(fleet.gateway), secrets)
    plane = Local(gateway, fleet.endpoints)
    kept, keep = _restored(fleet, state)
    # What was set before is in force before the first request.
    plane.put_in_force(kept)
    api = Api(Control(fleet.endpoints, kept, keep, plane), token)
    with stop_event() as told_to_stop:
        for door in doors(fleet.gateway, fleet.endpoints):
            try:
                await gateway.start(*door.place, door.endpoint)
            except OSError as problem:
                raise _not_there(door, problem) from None
        leave_loaded_alone()
        metrics = Metrics(gateway.core, gateway.mirrors).render
        pages = Pages(lambda: _health(gateway.core), metrics, api.answer)
        with listening(fleet.gateway.admin, pages, see="gateway.admin"):
            _log.info("serving", listen=fleet.gateway.listen, admin=fleet.gateway.admin)
            await told_to_stop.wait()
            _log.info("stopping", in_flight=len(gateway.core.clients))
            await gateway.stop()
    _log.info("stopped")
    return 0


async def _together(
    fleet: Fleet,
    secrets: Mapping[tuple[str, str], str],
    token: str | None,
    state: StateFile | None,
) -> int:
    """The first of several processes: it serves nothing itself, and speaks for all."""
    settings = fleet.gateway
    kept, keep = _restored(fleet, state)
    with stop_event() as told_to_stop, ExitStack() as held:
        places = []
        for door in doors(settings, fleet.endpoints):
            try:
                port = held.enter_context(reserved(*door.place))
            except OSError as problem:
                raise _not_there(door, problem) from None
            places.append((door.place[0], port, door.endpoint))
        group = Group(fleet, secrets, places, kept)
        api = Api(Control(fleet.endpoints, kept, keep, group), token)
        try:
            await unless(told_to_stop, group.start())
            pages = Pages(group.health, group.page, api.answer)
            held.enter_context(listening(settings.admin, pages, see="gateway.admin"))
            if not told_to_stop.is_set():
                _log.info(
                    "serving",
                    listen=settings.listen,
                    admin=settings.admin,
                    processes=[each.pid for each in group.members],
                )
                await unless(told_to_stop, group.given_up())
                _log.info("stopping")
        finally:
            await group.stop()
    _log.info("stopped")
    return 0


def _not_there(door: Door, problem: OSError) -> SetupError:
    why = (problem.strerror or str(problem)).lower()
    return SetupError(f"can't listen at {'.'.join(door.key)} = {door.address} ({why})")


def _secrets(fleet: Fleet) -> dict[tuple[str, str], str]:
    """The tokens of candidates, by endpoint and candidate; read once, when the process begins."""
    found = {}
    for name, endpoint in fleet.endpoints.items():
        for candidate, spec in endpoint.candidates.items():
            if spec.token is not None:
                try:
                    found[name, candidate] = resolve(spec.token)
                except SecretError as problem:
                    raise SettingError(
                        f"endpoints.{name}.candidates.{candidate}.token: {problem}"
                    ) from None
    return found


def _admin_token(fleet: Fleet) -> str | None:
    ref = fleet.gateway.admin_token
    if ref is None:
        return None
    try:
        token = resolve(ref)
    except SecretError as problem:
        raise SettingError(f"gateway.admin_token: {problem}") from None
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or " " in token:
        raise SettingError(
            f"gateway.admin_token: it has to be {_SHORTEST_TOKEN} characters or more, of ASCII and"
            " without blanks: make one with `openssl rand -hex 32`"
        )
    return token


def _check_folders(fleet: Fleet) -> None:
    for name, endpoint in fleet.endpoints.items():
        if endpoint.paired_samples is not None:
            folder = Path(endpoint.paired_samples.file).parent
            if not os.access(folder, os.W_OK | os.X_OK):
                at = f"endpoints.{name}.paired_samples.file"
                remedy = "make the folder, or choose another"
                raise SettingError(f"{at}: nothing can be written in {folder}: {remedy}")


def _health(core: Core) -> Health:
    still = time.monotonic() - core.sweeper.now
    why = ["the gateway is stopping"] if core.stopping else []
    if still > _STANDS_STILL:
        why.append(f"the event loop has stood still for {still:.0f} s")
    return Health(why, {"loop": round(still, 1)})
