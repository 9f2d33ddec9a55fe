"""How long an engine must stand still before that says anything: a matter of what its page has."""

from datetime import timedelta

from fleet.engines.profiles import PROFILES, profile_named
from fleet.engines.reading import EngineReading, EngineState


def window_of(engine: EngineReading, state: EngineState) -> timedelta:
    """For one engine of the page, by the witnesses that it has."""
    return profile_named(engine.profile).window_of(frozenset(state.witnesses))


def longest_window(engine: EngineReading | None) -> timedelta:
    """For every engine of the page."""
    if engine is None:
        return timedelta(0)
    return max((window_of(engine, each) for each in engine.engines), default=timedelta(0))


def longest_of(kind: str) -> timedelta:
    """Of a server of which no page was read yet, if it has the best witnesses of its kind."""
    profile = PROFILES[kind]
    return max(each.window for each in (profile, *profile.among))
