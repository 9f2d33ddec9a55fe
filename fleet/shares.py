"""What a sweep tells ``storm-guard`` of its shard: who turned bad, of how many that count.

Those count that steady manages and has seen: not those that it may not restart anyway (no restart
configured, ``alert_only``, no budget), that a person paused, or that are off on purpose.
"""

import hashlib
from collections.abc import Iterator
from datetime import datetime

from fleet.contracts.fleet import StormTerms
from fleet.contracts.storm import ShareReport
from fleet.contracts.sweep import SweepReadings, SweepResult
from fleet.judge import Memory
from fleet.policy import Mode, Policy
from fleet.suspicion import is_too_many
from fleet.verdicts import GOOD, OFF_LOOKS_LIKE, Verdict

#: Of such a server nothing was seen.
_UNSEEN = frozenset({Verdict.MISSING, Verdict.UNREADABLE})


def ill(servers: dict[str, Memory], before: SweepResult | None) -> dict[str, datetime]:
    """Since when each server that is bad has been so, through all its verdicts. One that is
    ``missing`` from its first sweep on was never seen, and so never turned bad.
    """
    found: dict[str, datetime] = {}
    for server, memory in servers.items():
        then = before.servers.get(server) if before is not None else None
        since = before.ill.get(server) if before is not None else None
        if memory.verdict in GOOD:
            continue
        if since is not None:
            found[server] = since
        elif memory.verdict is not None and not _was_never_seen(memory, then):
            found[server] = memory.since
    return found


def news(
    seen: SweepReadings, result: SweepResult, before: SweepResult | None, now: datetime
) -> ShareReport | None:
    """What ``storm-guard`` has to hear of this sweep; none where that is nothing new.

    What looks like a storm is said with every sweep.
    """
    if seen.storm is None:
        return None
    counted = list(_counted(seen, result, before))
    bad = {server: result.ill[server] for server in counted if server in result.ill}
    report = ShareReport(
        shard=result.shard, at=now, managed=len(counted), ill=bad, terms=seen.storm
    )
    heard = before.share_heard if before is not None else ""
    return report if digest(report) != heard or _is_storm(report, seen.storm) else None


def digest(report: ShareReport) -> str:
    """Empty where no server is bad: how many count is of no interest then."""
    if not report.ill:
        return ""
    told = report.model_dump_json(include={"managed", "ill"})
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _is_storm(report: ShareReport, terms: StormTerms) -> bool:
    lately = [since for since in report.ill.values() if since >= report.at - terms.storm.window]
    return is_too_many(len(lately), report.managed, terms)


def _counted(seen: SweepReadings, result: SweepResult, before: SweepResult | None) -> Iterator[str]:
    unmanaged = set(seen.unmanaged)
    for server, memory in result.servers.items():
        policy, pause = seen.policies[seen.policy_of[server]], seen.paused.get(server)
        if server in unmanaged or not _may_restart(policy):
            continue
        if pause is not None and pause.until > result.at:
            continue
        if policy.expected_off and memory.verdict in OFF_LOOKS_LIKE:
            continue
        if _is_in_sight(server, memory, result, before):
            yield server


def _may_restart(policy: Policy) -> bool:
    return policy.mode is not Mode.ALERT_ONLY and policy.budget.limit > 0


def _is_in_sight(
    server: str, memory: Memory, result: SweepResult, before: SweepResult | None
) -> bool:
    """It was seen once. After a pause of steady nothing is confirmed for a sweep or two."""
    if server in result.ill:
        return True
    if memory.verdict is not None:
        return memory.verdict in GOOD
    return before is not None and server in before.servers


def _was_never_seen(memory: Memory, then: Memory | None) -> bool:
    if memory.verdict not in _UNSEEN:
        return False
    return then is None or (then.verdict not in GOOD and then.beat is None and not then.process)
