"""From the text of a metrics page to the small form that is judged."""

import hashlib
import math
from collections.abc import Iterator, Sequence

from fleet.engines.exposition import Labels, Samples, find, why_no_page
from fleet.engines.profile import Profile, Series
from fleet.engines.profiles import recognise
from fleet.engines.reading import MOST_ENGINES, EngineReading, EngineState, Page

#: A label set's values for the profile's engine labels; labels that are not there are empty.
_Key = tuple[str, ...]
#: The samples of each name that are numbers, with the engine that they tell of.
_Page = dict[str, list[tuple[_Key, Labels, float]]]

_LONGEST_START = 40
#: Sums of such numbers are finite still, as JSON asks for.
_LARGEST = 1e300


def read_page(page: bytes, profile: Profile, start: str | None = None) -> tuple[EngineReading, str]:
    """What the page says of its engines, and in words what is wrong with it, where something is.

    ``start`` is the value of the profile's ``start_header``, where the answer had one.
    """
    wrong = why_no_page(page)
    if wrong:
        return EngineReading(profile=profile.name, page=Page.UNREADABLE), wrong
    known = recognise(page, profile.among) if profile.among else profile
    if known is None:
        said = _of_another(page, profile)
        return EngineReading(profile=profile.name, page=Page.BARE), said
    profile = known
    found = _by_engine(find(page, profile.names), profile)
    states = _states(found, profile)
    if len(states) > MOST_ENGINES:
        said = f"the page tells of {len(states)} engines, more than {MOST_ENGINES}"
        return EngineReading(profile=profile.name, page=Page.UNREADABLE), said
    started = _started(found, profile) or (_short(start) if profile.start_header else None)
    if not any(state.witnesses for state in states):
        said = _of_another(page, profile)
        return EngineReading(profile=profile.name, page=Page.BARE, started=started), said
    seen = EngineReading(
        profile=profile.name,
        started=started,
        engines=tuple(states),
        counters=_counters(found, profile),
        named=_takes_names(found, profile) if len(states) > 1 else None,
    )
    return seen, ""


def _takes_names(page: _Page, profile: Profile) -> bool:
    """Whether its version is known to pass a request to the engine that it names."""
    return profile.ranks and all(
        any(page.get(name) for name in names) for names in profile.ranks_since
    )


def _of_another(page: bytes, profile: Profile) -> str:
    none = f"the page has none of the counters of {profile.name}"
    if profile.name == "engine":
        none = "the page has the counters of no engine that is known"
    other = recognise(page)
    if other is None or other.name == profile.name or other.witnesses == profile.witnesses:
        return none
    kind = other.name.partition("/")[0]
    return f'{none}, but those of {other.name}: is source.kind = "{kind}" what it is?'


def _by_engine(samples: Samples, profile: Profile) -> _Page:
    # The samples of one engine share their labels, mostly.
    keys: dict[int, _Key] = {}
    page: _Page = {}
    for name, of_name in samples.items():
        page[name] = found = []
        for labels, value in of_name:
            if math.isnan(value):
                continue
            key = keys.get(id(labels))
            if key is None:
                key = keys[id(labels)] = _key(labels, profile.engine_labels)
            found.append((key, labels, value))
    return page


def _states(page: _Page, profile: Profile) -> list[EngineState]:
    running = _total(page, profile.in_flight)
    waiting = _total(page, profile.waiting)
    steps = _values(page, profile.steps)
    awake = _values(page, profile.awake)
    paused = _values(page, profile.paused)
    seen = {each.name: _values(page, each.series) for each in profile.witnesses}
    # Where gauges name the engines, a witness of the whole page makes no engine more.
    keys = sorted({*running, *waiting} or {key for values in seen.values() for key in values})
    shown = {key for found in (running, waiting) for key, value in found.items() if value}
    is_open = _open(page, profile, keys, shown) if profile.open else {}
    return [
        EngineState(
            label=label[:120],
            running=running.get(key, 0),
            waiting=waiting.get(key, 0),
            open=is_open.get(key, 0),
            steps=steps.get(key),
            witnesses=_with_queue(
                {name: values[key] for name, values in seen.items() if key in values},
                waiting.get(key, 0) if profile.queue_by_steps and running.get(key) else None,
            ),
            asleep=awake.get(key) == 0 or (paused.get(key, 0) > 0 and not running.get(key)),
        )
        for key, label in zip(keys, _named(keys), strict=True)
    ]


def _with_queue(witnesses: dict[str, float], queue: float | None) -> dict[str, float]:
    """The witnesses of an engine, and how long its queue is where that is one."""
    return {**witnesses, "queue": queue} if witnesses and queue is not None else witnesses


def _open(
    page: _Page, profile: Profile, keys: Sequence[_Key], shown: set[_Key]
) -> dict[_Key, float]:
    """What is open at the front end, of engines whose own gauges show nothing: not ``shown``.

    A count of the whole page may be any engine's, so it says something only where all show none.
    """
    found: dict[_Key, float] = {}
    for series in profile.open:
        for key, value in _values(page, series).items():
            found[key] = max(found.get(key, 0), value)
    whole = max((value for key, value in found.items() if key not in keys), default=0.0)
    if shown:
        whole = 0
    return {key: max(found.get(key, 0), whole) for key in keys if key not in shown}


def _named(keys: Sequence[_Key]) -> Iterator[str]:
    """The first label tells most engines apart; the others are added only where it does not."""
    firsts = [key[0] if key else "" for key in keys]
    is_enough = len(set(firsts)) == len(firsts)
    for key, first in zip(keys, firsts, strict=True):
        yield first if is_enough else "/".join(filter(None, key))


def _total(page: _Page, parts: Sequence[Series]) -> dict[_Key, float]:
    """Gauges of work; one below zero says no more than none."""
    total: dict[_Key, float] = {}
    for part in parts:
        for key, value in _values(page, part).items():
            total[key] = total.get(key, 0) + max(value, 0)
    return total


def _counters(page: _Page, profile: Profile) -> dict[str, float]:
    """The counters that are no witnesses, over the whole page: not all carry an engine's labels."""
    found = {each.name: _values(page, each.series) for each in profile.counters}
    return {name: sum(values.values()) for name, values in found.items() if values}


def _values(page: _Page, series: Series | None) -> dict[_Key, float]:
    """The series by engine, under the first of its names that the page has."""
    if series is None:
        return {}
    found: dict[_Key, float] = {}
    for name in series.names:
        if name in page and (found := _under(page, series, name)):
            break
    for name in series.less:
        for key, value in _under(page, series, name).items():
            found[key] = found.get(key, 0) - value
    if not found:
        return found
    least = 0 if series.less else -_LARGEST
    return {
        key: value if least <= value <= _LARGEST else max(least, min(value, _LARGEST))
        for key, value in found.items()
        if math.isfinite(value)
    }


def _under(page: _Page, series: Series, name: str) -> dict[_Key, float]:
    found: dict[_Key, float] = {}
    if not series.where and not series.added:
        for key, _, value in page.get(name, ()):
            if key not in found or value > found[key]:
                found[key] = value
        return found
    parts: dict[tuple[_Key, _Key], float] = {}
    for key, labels, value in page.get(name, ()):
        if _is_meant(labels, series):
            part = (key, _key(labels, series.added))
            parts[part] = max(parts.get(part, value), value)
    for (key, _), value in parts.items():
        found[key] = found.get(key, 0) + value
    return found


def _is_meant(labels: Labels, series: Series) -> bool:
    return all(labels.get(label, "") in values for label, *values in series.where)


def _key(labels: Labels, names: Sequence[str]) -> _Key:
    return tuple([labels.get(name, "") for name in names])


def _started(page: _Page, profile: Profile) -> str | None:
    """Every value of the first series that is there: one for each rank, with stamps of creation."""
    for name in profile.started.names if profile.started is not None else ():
        values = sorted({value for _, _, value in page.get(name, ())})
        if values:
            return _short(",".join(f"{value!r}" for value in values))
    return None


def _short(text: str | None) -> str | None:
    if text is None or len(text) <= _LONGEST_START:
        return text or None
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_LONGEST_START]
