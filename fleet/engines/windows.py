"""How long an engine must stand still before that says anything: a matter of what its page has."""

from datetime import timedelta

from fleet.engines.profile import Profile
from fleet.engines.profiles import PROFILES, profile_named
from fleet.engines.reading import EngineReading, EngineState

#: So often may a batch take as long as those before it took on average: late in a long prompt, or
#: on a machine that has other work.
_SLOWER = 2
#: A sweep can't remember for much longer that an engine stood still. From the first look to the end
#: of the request, three such windows pass.
_LONGEST_BATCH = timedelta(seconds=200)


def window_of(engine: EngineReading, state: EngineState) -> timedelta:
    """For one engine of the page, by the witnesses that it has, and how fast it reads prompts."""
    profile = profile_named(engine.profile)
    return max(profile.window_of(frozenset(state.witnesses)), _longest_batch(engine, profile))


def _longest_batch(engine: EngineReading, profile: Profile) -> timedelta:
    tokens, seconds = (engine.counters.get(name, 0) for name in ("prompt", "prompt_time"))
    if not profile.batch or tokens <= 0 or seconds <= 0:
        return timedelta(0)
    longest = _LONGEST_BATCH.total_seconds()
    return timedelta(seconds=min(longest, _SLOWER * profile.batch * seconds / tokens))


def longest_window(engine: EngineReading | None) -> timedelta:
    """For every engine of the page."""
    if engine is None:
        return timedelta(0)
    return max((window_of(engine, each) for each in engine.engines), default=timedelta(0))


def longest_of(kind: str) -> timedelta:
    """Of a server of which no page was read yet, if it has the best witnesses of its kind."""
    profile = PROFILES[kind]
    return max(each.window for each in (profile, *profile.among))
