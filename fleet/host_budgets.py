"""Whether the capped total of a machine can ever cap anything, and is one for each machine."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from math import ceil

from fleet.actions import Host, machine
from fleet.durations import show
from fleet.policy import DailyBudget, HostBudget, Policy
from fleet.refusal import Refusal

_DAY = timedelta(hours=24)
#: A host whose table has no budget of its own must never make a fleet file invalid.
_DEFAULT = HostBudget()


def contradictions(
    hosts: Mapping[str, Host], policies: Mapping[str, Mapping[str, Policy]]
) -> Iterator[Refusal]:
    """What is wrong with the hosts' budgets; ``policies`` are those of its servers, by host."""
    yield from _two_for_one(hosts)
    for name, host in hosts.items():
        most = sum(_most(policy, host.budget.window) for policy in policies.get(name, {}).values())
        if host.budget != _DEFAULT and 0 < most < host.budget.limit:
            yield Refusal(
                ("hosts", name, "budget", "limit"),
                f"{host.budget.limit} can never be reached: the budgets of its servers"
                f" ({len(policies[name])}) allow {most} in {show(host.budget.window)}",
                f"choose at most {most}, or leave the key out",
            )


def _two_for_one(hosts: Mapping[str, Host]) -> Iterator[Refusal]:
    seen: dict[str, str] = {}
    for name, host in hosts.items():
        first = seen.setdefault(machine(host), name)
        if hosts[first].budget != host.budget:
            yield Refusal(
                ("hosts", name, "budget"),
                f"is not the one of hosts.{first}, which is the same machine (address and port)",
                "a machine has one budget: write the same in both tables",
            )


def _most(policy: Policy, window: timedelta) -> int:
    """No stretch of ``window`` sees more restarts of that server."""
    spacing = max(policy.cooldown, policy.verify_after)
    by_time = window // spacing + 1
    if isinstance(policy.budget, DailyBudget):
        return min(by_time, policy.budget.limit * (ceil(window / _DAY) + 1))
    return min(by_time, policy.budget.limit * ceil(window / policy.budget.window))
