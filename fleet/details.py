"""What the Temporal UI shows of steady's workflows, in Markdown.

The UI fetches a page's details under a URL that holds all of their text, so a proxy before it
refuses long ones: they are cut to what fits. It draws them again only when the workflow writes
them, so they name moments and count no seconds down.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from urllib.parse import quote

from fleet.contracts.names import guard_id, remediation_id
from fleet.contracts.remediation import Moment, Phase, RemediationStatus
from fleet.contracts.sweep import SweepResult
from fleet.durations import brief
from fleet.remediation import MEANING
from fleet.verdicts import FOR_REMEDIATION, GOOD

#: Characters of a page, percent-encoded: common proxies take 8 KB for a URL.
_MOST_ENCODED = 7000

#: What a person may do, for whoever meets a remediation in the Temporal UI first.
WHAT_A_PERSON_CAN_SAY = """\
**What a person can say**, by *More Actions*, *Send a Signal*. The input may stay empty, or be \
`{"who": "ana", "why": "…"}`.

- `cancel`: end this without a restart
- `snooze`: wait before acting; here the input says for how long, `{"for": "30m"}`
- `approve`: let the restart happen (mode `approve`)
- `restart_now`: restart without waiting, within the budget

*Request Cancellation* does the same as `cancel`."""


def remediation(status: RemediationStatus, namespace: str) -> str:
    """An incident: where it stands, what comes next, and how it came."""
    said = meaning(status)
    head = f"**{status.outcome}**: {said}" if status.outcome is not None else str(status.phase)
    lines = [f"**{status.server}** · {head}", "", *_facts(status, namespace)]
    if status.timeline:
        lines += ["", "**What happened** (UTC)", ""]
    newest, hidden = _fitting(_moments(status.timeline)[::-1], lines)
    earlier = [f"- … {hidden} earlier: the query `status` has them all"] if hidden else []
    return "\n".join([*lines, *earlier, *reversed(newest)])


def sweep(result: SweepResult, namespace: str) -> str:
    """What a sweep found: who is not well and why, and who may not be."""
    whys = {name: plain(why) for name, why in result.whys.items()}
    bad = [
        f"- `{name}` **{memory.verdict}** since {utc(memory.since)}: {whys.get(name, '')}"
        + (f", {_incident(name, namespace)}" if memory.verdict in FOR_REMEDIATION else "")
        for name, memory in sorted(result.servers.items())
        if memory.verdict is not None and memory.verdict not in GOOD
    ]
    doubted = [
        f"- `{name}` may be {memory.pending}, the next sweep will tell: {whys.get(name, '')}"
        for name, memory in sorted(result.servers.items())
        if memory.pending is not None and (memory.verdict is None or memory.verdict in GOOD)
    ]
    count = many(len(result.servers), "server")
    head = f"**{count}**, {len(bad)} not well, {len(doubted)} in doubt"
    return page([f"{head} (fleet version {result.version})", ""], [*bad, *doubted])


def _incident(server: str, namespace: str) -> str:
    return link(remediation_id(server), namespace)


def page(head: Sequence[str], rows: Sequence[str]) -> str:
    """What must be said, and as many rows as fit; how many do not is said."""
    shown, hidden = _fitting(rows, head)
    return "\n".join([*head, *shown, *([f"- … {hidden} more"] if hidden else [])])


def meaning(status: RemediationStatus) -> str:
    """What to make of an incident's outcome by now; empty where there is none yet."""
    if status.outcome is None:
        return ""
    if status.phase is Phase.CLOSED and status.next_step:
        return line(status.next_step)
    return MEANING[status.outcome]


def _facts(status: RemediationStatus, namespace: str) -> list[str]:
    job = f", job {code(status.job)}" if status.job else ""
    facts = [
        f"- verdict **{status.verdict}** since {utc(status.since)}{job}"
        if status.verdict is not None and status.since is not None
        else "",
        _next(status),
        f"- restarts in this incident: {status.restarts}",
        f"- pages: {', '.join(status.pages)}" if status.pages else "",
        f"- incident {code(status.incident)}" if status.incident else "",
        f"- its ledger: {link(guard_id(status.server), namespace)}" if status.incident else "",
    ]
    return [fact for fact in facts if fact]


def _next(status: RemediationStatus) -> str:
    if status.phase is Phase.CLOSED:
        took = status.closed_at - status.since if status.closed_at and status.since else None
        after = f", after {brief(took)}" if took is not None else ""
        return f"- closed {utc(status.closed_at)}{after}" if status.closed_at else ""
    if not status.next_step:
        return ""
    at = f", at {utc(status.next_at)}" if status.next_at is not None else ""
    return f"- next: {plain(status.next_step)}{at}"


def _moments(moments: Sequence[Moment]) -> list[str]:
    days = bool(moments) and moments[-1].at - moments[0].at >= timedelta(days=1)
    form = "%m-%d %H:%M:%S" if days else "%H:%M:%S"
    return [f"- `{moment.at:{form}}` {plain(moment.text)}" for moment in moments]


def _fitting(rows: Sequence[str], head: Sequence[str]) -> tuple[list[str], int]:
    """The first rows that fit beside the head, and how many do not."""
    lengths = accumulate(map(_encoded, rows), initial=sum(map(_encoded, head)))
    count = sum(length <= _MOST_ENCODED for length in lengths) - 1
    shown = list(rows[: max(0, count)])
    return shown, len(rows) - len(shown)


def utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def link(workflow_id: str, namespace: str) -> str:
    """A link to another workflow. Relative, so that it holds wherever the UI is served."""
    return f"[{workflow_id}](namespaces/{quote(namespace)}/workflows/{quote(workflow_id, safe='')})"


def line(text: str) -> str:
    """What others said, kept from starting a line, and so a row or a heading, of its own."""
    return " ".join(text.split())


def plain(text: str) -> str:
    """What others said, as they said it: nothing in it is Markdown."""
    return "".join(f"\\{char}" if char in _MARKS else char for char in line(text))


def code(text: str) -> str:
    return f"`{line(text).replace(chr(96), chr(39))}`"


def _encoded(text: str) -> int:
    return len(quote(f"{text}\n", safe=""))


_MARKS = frozenset("\\`*[]<|~")
