"""``storm-guard`` as the Temporal UI shows it, in Markdown."""

from fleet.contracts.storm import Lease, StormState
from fleet.details import link, many, page, plain, utc
from fleet.durations import show
from fleet.storms import blocked_by
from fleet.suspicion import opens_at


def markdown(state: StormState, namespace: str) -> str:
    """Moments and no spans: it is drawn when something changes, and read at any time."""
    limit = f"at most {many(state.terms.at_once, 'restart')} at once"
    head = f"**restarts are blocked**: {blocked_by(state)}" if state.suspicion else f"**{limit}**"
    facts = [head, "", *_suspicion(state)]
    facts += [f"- {limit}; {len(state.holders)} now, {len(state.waiting)} wait", ""]
    rows = [f"- holds a slot: {_lease(lease, namespace)}" for lease in state.holders]
    rows += [f"- waits: {_lease(lease, namespace)}" for lease in state.waiting]
    return page(facts, rows)


def _suspicion(state: StormState) -> list[str]:
    suspicion = state.suspicion
    if suspicion is None:
        return []
    at, good_for = opens_at(state), show(state.terms.storm.cooldown)
    until = f"at {utc(at)}, if it stays good" if at is not None else f"when good for {good_for}"
    names = ", ".join(plain(name) for name in suspicion.servers)
    more = " and more" if suspicion.bad > len(suspicion.servers) else ""
    return [
        f"- since {utc(suspicion.began)}: {names}{more}",
        f"- opens {until}; or by `steady storm --open`",
    ]


def _lease(lease: Lease, namespace: str) -> str:
    since = lease.granted_at or lease.asked_at
    hand = ", by hand" if lease.by_hand else ""
    return f"{link(lease.workflow_id, namespace)} since {utc(since)}{hand}"
