"""What people are told of a drill: in messages, on the terminal, in the Temporal UI."""

from datetime import timedelta

from fleet.contracts.drill import DrillOutcome, DrillPhase, DrillStatus, Expected
from fleet.contracts.names import remediation_id
from fleet.details import code, link, page, plain, utc
from fleet.durations import brief
from fleet.policy import Policy

#: What a person should make of an outcome.
MEANING: dict[DrillOutcome, str] = {
    DrillOutcome.HEALED: "found, restarted and healthy again",
    DrillOutcome.NOT_FOUND: "nobody found it in time",
    DrillOutcome.NOT_HEALED: "found, and not healed",
    DrillOutcome.NOT_FROZEN: "what was frozen is not what works",
    DrillOutcome.NEVER_BUSY: "it had no work in time, so nothing was frozen",
    DrillOutcome.REFUSED: "nothing was frozen",
    DrillOutcome.CANCELLED: "ended by a person",
    DrillOutcome.FAILED: "the drill itself failed",
}

#: Outcomes of which a person must hear at once: the net that was tried has a hole.
PAGES = frozenset({DrillOutcome.NOT_FOUND, DrillOutcome.NOT_HEALED})

#: Outcomes before anything was touched: whoever ordered the drill has read it already.
QUIET = frozenset({DrillOutcome.REFUSED, DrillOutcome.NEVER_BUSY})


def too_late(status: DrillStatus, what: str, limit: timedelta) -> str:
    incident = f", incident {status.incident}" if status.incident else ""
    return f"not {what} within {brief(limit)} of the freeze{incident}"


def steps(status: DrillStatus) -> list[tuple[str, timedelta | None, timedelta | None]]:
    """Each step, how long after the freeze it came, and how long it was expected to take."""
    goal = status.expected
    moments = (
        ("found", status.found_at, goal.found if goal else None),
        ("restarted", status.restarted_at, goal.restarted if goal else None),
        ("works again", status.works_at, None),
        ("healed", status.healed_at, goal.healed if goal else None),
    )
    began = status.frozen_at
    return [
        (name, at - began if at is not None and began is not None else None, within)
        for name, at, within in moments
    ]


def in_words(status: DrillStatus) -> str:
    """The times of a drill in one sentence, for a message."""
    came = [(name, took) for name, took, _ in steps(status) if took is not None]
    return ", ".join(f"{name} after {brief(took)}" for name, took in came)


def promise(policy: Policy, goal: Expected | None) -> str:
    """What a person confirms, in one sentence."""
    times = (
        f" It should be found within {brief(goal.found)}, restarted within"
        f" {brief(goal.restarted)} and healthy within {brief(goal.healed)}."
        if goal is not None
        else ""
    )
    return (
        "its process is frozen in the middle of its work, and that work is lost: steady has to find"
        f" it and restart it, which costs one restart of {policy.budget.limit}.{times}"
    )


def markdown(status: DrillStatus, namespace: str) -> str:
    """The page of the workflow in the Temporal UI."""
    head = f"**{status.outcome}**: {MEANING[status.outcome]}" if status.outcome else status.phase
    at = f", until {utc(status.next_at)}" if status.next_at is not None else ""
    facts = [
        f"- ordered by {plain(status.who)}" if status.who else "",
        f"- {plain(status.why)}" if status.outcome is not None and status.why else "",
        f"- next: {plain(status.next_step)}{at}" if status.phase is not DrillPhase.CLOSED else "",
        "- **its process may still be frozen**" if status.is_frozen and status.outcome else "",
        f"- incident {code(status.incident)}, {link(remediation_id(status.server), namespace)}"
        if status.incident
        else "",
    ]
    times = [
        f"- {name} after {brief(took)}" + (f" (expected within {brief(within)})" if within else "")
        for name, took, within in steps(status)
        if took is not None
    ]
    rows = [f"- `{moment.at:%H:%M:%S}` {plain(moment.text)}" for moment in status.timeline]
    shown = [f"**A drill of {status.server}** · {head}", "", *(fact for fact in facts if fact)]
    shown += ["", "**After the freeze**", "", *times] if times else []
    return page([*shown, "", "**What happened** (UTC)", ""], rows)
