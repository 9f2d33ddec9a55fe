"""The live view of one engine: its verdict, and each witness with when it last moved."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleet.durations import brief
from fleet.engines.reading import EngineState, Page
from fleet.findings import Finding
from fleet.readings import Reading
from fleet.verdicts import ACTIONABLE, GOOD, Verdict
from worker.check_report import many, moved, printable

_MOVED, _STILL = "●", "○"


@dataclass
class Watching:
    """What has been seen since the watch began. ``moves`` has when each witness last moved."""

    place: str
    every: timedelta
    began: datetime
    readings: int = 0
    reading: Reading | None = None
    finding: Finding | None = None
    moves: dict[tuple[str, str], datetime] = field(default_factory=dict)
    _last: Reading | None = None

    def see(self, reading: Reading, finding: Finding) -> None:
        before = self._last.engine if self._last is not None else None
        for label, names in moved(before, reading.engine).items():
            self.moves.update(dict.fromkeys(((label, name) for name in names), reading.at))
        if reading.engine is not None and reading.engine.page is Page.OK:
            self._last = reading
        self.readings += 1
        self.reading, self.finding = reading, finding

    @property
    def engines(self) -> tuple[EngineState, ...]:
        shown = self._last.engine if self._last is not None else None
        return shown.engines if shown is not None else ()

    def just_moved(self, label: str, name: str) -> bool:
        return self.reading is not None and self.moves.get((label, name)) == self.reading.at


def line(seen: Watching) -> str:
    """One look, for a file or another program."""
    if seen.reading is None or seen.finding is None:
        return ""
    names = sorted(
        name
        for each in seen.engines
        for name in each.witnesses
        if seen.just_moved(each.label, name)
    )
    what = f"moved: {', '.join(dict.fromkeys(names))}" if names else "nothing moved"
    said = f"{seen.finding.verdict}: {seen.finding.why} [{what}]"
    return f"{seen.reading.at.astimezone():%H:%M:%S} {printable(said)}"


def screen(seen: Watching) -> RenderableType:
    parts: list[RenderableType] = [_header(seen), ""]
    if seen.reading is not None and seen.finding is not None:
        parts += [_verdict(seen.finding), ""]
        if seen.engines:
            parts += [_table(seen), ""]
    return Group(*parts, Text("nothing is sent to it but these readings; Ctrl-C ends", "dim"))


def _header(seen: Watching) -> Text:
    head = Text.assemble(("steady check", "bold"), f" · {seen.place}")
    engine = seen.reading.engine if seen.reading is not None else None
    if engine is not None:
        head.append(f" · {engine.profile}")
    return head.append(f" · {many(seen.readings, 'reading')}, one every {brief(seen.every)}")


def _verdict(finding: Finding) -> Text:
    text = Text(str(finding.verdict), style=f"bold {_style(finding.verdict)}")
    return text.append(f"  {printable(finding.why)}", style="default")


def _style(verdict: Verdict) -> str:
    if verdict in ACTIONABLE:
        return "red"
    return "green" if verdict in GOOD else "yellow"


def _table(seen: Watching) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown.add_column("engine", no_wrap=True)
    for name in ("running", "waiting", "step"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("witness", no_wrap=True)
    shown.add_column("value", justify="right", no_wrap=True)
    shown.add_column("moved")
    for engine in seen.engines:
        for row in _rows(engine, seen):
            shown.add_row(*row)
    return shown


def _rows(engine: EngineState, seen: Watching) -> Iterator[list[RenderableType]]:
    step = f"{engine.steps:,.0f}" if engine.steps is not None else "-"
    label = engine.label or "0"
    first = [label, f"{engine.running:g}", f"{engine.waiting:g}", step]
    for number, (name, value) in enumerate(engine.witnesses.items()):
        head = first if number == 0 else ["", "", "", ""]
        yield [*head, name, _value(name, value), _moved(engine.label, name, seen)]


def _value(name: str, value: float) -> str:
    if name == "kv":
        return f"{value:.2%}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3f}"


def _moved(label: str, name: str, seen: Watching) -> Text:
    at = seen.moves.get((label, name))
    now = seen.reading.at if seen.reading is not None else seen.began
    if seen.just_moved(label, name):
        return Text(f"{_MOVED} moved", style="green")
    since = f"{brief(now - at)} ago" if at is not None else f"not in {brief(now - seen.began)}"
    return Text(f"{_STILL} {since}", style="dim")
