"""Which gateways send requests to a server, and for how long it is drained there for a restart."""

from datetime import timedelta

from fleet.addresses import host_and_port, unix_path
from fleet.config import Fleet, Gateway
from fleet.contracts.gateway import Gateways
from fleet.contracts.remediation import Outcome
from fleet.ladder import Step
from fleet.parts import gpu_memory, in_parts, stop_time
from fleet.policy import Policy
from fleet.remediation import Decision
from fleet.verdicts import ACTIONABLE, Verdict

#: The longest that a gateway takes.
LONGEST = timedelta(days=7)
#: For what is asked of the host before and after the command.
_MARGIN = timedelta(minutes=15)
#: For so long a start of what was stopped may be tried.
_STARTS = timedelta(hours=1)
#: On every address of a machine, so also on this one.
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here

#: Ends after which the server is as bad as it was, and was perhaps restarted.
_STILL_BAD = frozenset(
    {
        Outcome.RESTART_FAILED,
        Outcome.HANDED_OVER,
        Outcome.BUDGET_EXHAUSTED,
        Outcome.ESCALATED,
        Outcome.INTERNAL_ERROR,
    }
)
_DOES_NOT_WORK = ACTIONABLE - {Verdict.ERROR}


def gateways(fleet: Fleet, server: str) -> Gateways | None:
    """Where to drain a server and what its restarts take along; none where no endpoint has any of
    them, or the gateway takes no orders.
    """
    settings, spec = fleet.gateway, fleet.servers.get(server)
    if settings.admin_token is None:
        return None
    steps = [*([spec.restart] if spec and spec.restart else []), *(spec.ladder if spec else [])]
    named = dict.fromkeys((server, *(name for each in steps for name in each.also_restarts)))
    backends = {name for endpoint in fleet.endpoints.values() for name in endpoint.backends}
    behind = [name for name in named if name in backends]
    if not behind:
        return None
    return Gateways(
        urls=admin_urls(settings),
        token=settings.admin_token,
        wait=settings.drain_wait,
        wait_hung=settings.drain_wait_hung,
        backends=behind,
    )


def drained_with(where: Gateways, server: str, step: Step) -> list[str]:
    """Who is drained for a step: the server, and the backends that it takes along."""
    taken = {server, *step.action.also_restarts}
    return [each for each in where.backends or [server] if each in taken]


def admin_urls(settings: Gateway) -> list[str]:
    """Where the gateways of a fleet file take orders."""
    return list(settings.admin_urls) or [own_url(settings.admin)]


def wait(where: Gateways, verdict: Verdict | None) -> timedelta:
    """How long to wait for what the server has in flight: what is hung finishes nothing."""
    return where.wait_hung if verdict in _DOES_NOT_WORK else where.wait


def restart_takes(step: Step) -> timedelta:
    """The longest that the command of a step may take, with all that belongs to it."""
    action = step.action
    takes = action.stop_timeout + step.host.connect_timeout + _MARGIN
    memory = gpu_memory(action)
    if in_parts(action):
        takes += stop_time(action) + _STARTS + (memory.within if memory else timedelta(0))
    return min(takes, LONGEST / 2)


def lasting(step: Step, policy: Policy) -> timedelta:
    """How long a server is drained for a restart: until it is surely over and was verified."""
    verified = max(policy.cooldown, policy.verify_after, policy.load_limit)
    return min(restart_takes(step) + verified + _MARGIN, LONGEST)


def stays_drained(decision: Decision) -> bool:
    """Whether the lease is left to run out: the server is as bad as it was."""
    return decision.outcome in _STILL_BAD and not decision.recovered


def own_url(address: str) -> str:
    """Where what listens at an address is reached, from its own machine if it is at all of them."""
    if unix_path(address) is not None:
        return address
    host, port = host_and_port(address)
    host = _ANY.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
