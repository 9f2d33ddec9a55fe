"""The story of an incident as lines for a terminal."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from fleet.contracts.remediation import Moment, Phase
from fleet.durations import brief
from fleet.gpus import in_words
from worker.deeds import Booked, Saved
from worker.evidence import Place, place
from worker.incident import Story
from worker.told import AlertTold

_LABEL = 11


def lines(story: Story, link: str | None) -> Iterator[str]:
    """Header, evidence, alerts, timeline. Times count from the first observation."""
    yield printable(story.incident or f"{story.server}, before an incident was opened")
    for label, text in _facts(story):
        yield f"  {label:{_LABEL}}{printable(text)}"
    if link is not None:
        yield f"  {'Temporal':{_LABEL}}{link}"
    for title, listed in (("alerts", _alerts(story)), ("timeline", _timeline(story))):
        if listed:
            yield f"\n{title}"
            yield from (f"  {printable(line)}" for line in listed)
    if not story.complete:
        yield "\nno worker answers for it, so its newest words are missing: start `steady worker`"


def _facts(story: Story) -> Iterator[tuple[str, str]]:
    yield "server", story.server + (f", job {story.job}" if story.job else "")
    if story.verdict is not None:
        yield "verdict", str(story.verdict)
    if story.since is not None:
        yield "began", f"{story.since:%Y-%m-%d %H:%M:%S} UTC"
    yield _state(story)
    if times := _times(story):
        yield "times", times
    yield "restarts", _restarts(story)
    yield from (("budget", _booked(story, each)) for each in story.budget)
    yield from (("evidence", _saved(each)) for each in story.evidence)


def _state(story: Story) -> tuple[str, str]:
    if story.outcome is not None and story.phase is Phase.CLOSED:
        return "outcome", f"{story.outcome}: {story.meaning}"
    if story.phase is None or story.phase is Phase.CLOSED:
        return "state", story.meaning
    words = (story.outcome, story.phase)
    state = ", ".join(dict.fromkeys(str(word) for word in words if word is not None))
    at = f", at {story.next_at:%H:%M:%S} UTC" if story.next_at is not None else ""
    return "state", f"{state}; next: {story.next_step}{at}" if story.next_step else state


def _times(story: Story) -> str:
    moments = {
        "detected": story.detected_at,
        "restarted": story.restarted_at,
        "recovered": story.recovered_at,
        "closed": story.closed_at if story.recovered_at is None else None,
    }
    return ", ".join(
        f"{what} after {_after(story, at).removeprefix('+')}"
        for what, at in moments.items()
        if at is not None
    )


def _restarts(story: Story) -> str:
    sent = ", ".join(f"{_after(story, each.at)} {each.effect}" for each in story.commands)
    return f"{story.restarts}" + (f" (commands: {sent})" if sent else "")


def _booked(story: Story, each: Booked) -> str:
    left = f", {each.left} left" if each.left is not None else ""
    why = f": {each.why}" if each.why else ""
    return f"{_after(story, each.at)} {each.word}{left}{why}"


def _saved(each: Saved) -> str:
    path = f"{each.path} ({_where(each)})" if each.path is not None else "none"
    faults = "".join(f"; {in_words(fault)}" for fault in each.faults)
    missing = f"; missing: {', '.join(each.missing)}" if each.missing else ""
    return path + faults + missing


def _where(each: Saved) -> str:
    match place(each):
        case Place.EXPIRED:
            return "expired"
        case Place.ELSEWHERE:
            return f"{each.size:,} bytes, on {each.kept_on}"
        case Place.HERE:
            return f"{each.size:,} bytes"


def _alerts(story: Story) -> Sequence[str]:
    return [f"{_after(story, each.at):>8}  {_alert(each)}" for each in story.alerts]


def _alert(each: AlertTold) -> str:
    came = {None: "on its way", True: "delivered", False: "NOT delivered"}[each.delivered]
    detail = f" ({each.detail})" if each.detail else ""
    return f"{each.severity or 'alert'} {each.cause}: {came}{detail} · {each.title}"


def _timeline(story: Story) -> Sequence[str]:
    return [_moment(story, each) for each in story.timeline]


def _moment(story: Story, each: Moment) -> str:
    return f"{_after(story, each.at):>8}  {each.at:%H:%M:%S}  {each.text}"


def _after(story: Story, at: datetime) -> str:
    """How long after the first observation; clocks of two machines may disagree by a little."""
    if story.since is None:
        return f"{at:%H:%M:%S}"
    return f"+{brief(max(timedelta(0), at - story.since))}"


def printable(text: str) -> str:
    """Jobs and errors are others' words; control characters in them would reach the terminal."""
    return "".join(char if char.isprintable() else " " for char in text)
