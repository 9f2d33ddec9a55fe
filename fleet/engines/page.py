"""From the text of a metrics page to the small form that is judged."""

import math
from collections.abc import Iterator, Sequence

from fleet.engines.exposition import Labels, samples, why_no_page
from fleet.engines.profile import Profile, Series
from fleet.engines.reading import MOST_ENGINES, EngineReading, EngineState, Page

#: A label set's values for the profile's engine labels; labels that are not there are empty.
_Key = tuple[str, ...]


def read_page(page: bytes, profile: Profile) -> tuple[EngineReading, str]:
    """What the page says of its engines, and in words what is wrong with it, where something is."""
    wrong = why_no_page(page)
    if wrong:
        return EngineReading(profile=profile.name, page=Page.UNREADABLE), wrong
    states = _states(page, profile)
    if len(states) > MOST_ENGINES:
        said = f"the page tells of {len(states)} engines, more than {MOST_ENGINES}"
        return EngineReading(profile=profile.name, page=Page.UNREADABLE), said
    started = _started(page, profile)
    if not any(state.witnesses for state in states):
        said = f"the page has none of the counters of {profile.name}"
        return EngineReading(profile=profile.name, page=Page.BARE, started=started), said
    return EngineReading(profile=profile.name, started=started, engines=tuple(states)), ""


def _states(page: bytes, profile: Profile) -> list[EngineState]:
    running = _total(page, profile, profile.in_flight)
    waiting = _total(page, profile, profile.waiting)
    steps = _values(page, profile, profile.steps)
    awake = _values(page, profile, profile.awake) if profile.awake is not None else {}
    seen = {each.name: _values(page, profile, each.series) for each in profile.witnesses}
    keys = sorted({*running, *waiting, *(key for values in seen.values() for key in values)})
    return [
        EngineState(
            label=label[:120],
            running=running.get(key, 0),
            waiting=waiting.get(key, 0),
            steps=steps.get(key),
            witnesses={name: values[key] for name, values in seen.items() if key in values},
            asleep=awake.get(key) == 0,
        )
        for key, label in zip(keys, _named(keys), strict=True)
    ]


def _named(keys: Sequence[_Key]) -> Iterator[str]:
    """The first label tells most engines apart; the others are added only where it does not."""
    firsts = [key[0] if key else "" for key in keys]
    is_enough = len(set(firsts)) == len(firsts)
    for key, first in zip(keys, firsts, strict=True):
        yield first if is_enough else "/".join(filter(None, key))


def _total(page: bytes, profile: Profile, parts: Sequence[Series]) -> dict[_Key, float]:
    total: dict[_Key, float] = {}
    for part in parts:
        for key, value in _values(page, profile, part).items():
            total[key] = total.get(key, 0) + value
    return total


def _values(page: bytes, profile: Profile, series: Series) -> dict[_Key, float]:
    """The series by engine, under the first of its names that the page has."""
    found: dict[_Key, float] = {}
    for name in series.names:
        for labels, value in samples(page, name):
            if math.isnan(value) or any(labels.get(each) != is_ for each, is_ in series.where):
                continue
            key = _key(labels, profile)
            found[key] = max(found.get(key, value), value)
        if found:
            break
    return {key: value for key, value in found.items() if math.isfinite(value)}


def _key(labels: Labels, profile: Profile) -> _Key:
    return tuple(labels.get(name, "") for name in profile.engine_labels)


def _started(page: bytes, profile: Profile) -> str | None:
    for name in profile.started.names:
        for _, value in samples(page, name):
            return f"{value!r}"[:40]
    return None
