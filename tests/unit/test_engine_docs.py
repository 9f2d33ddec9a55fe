"""The pages on engines are held to the profiles: what is read stands there."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from fleet.engine_sources import EngineSource
from fleet.engines.profile import Profile, Series
from fleet.engines.profiles import PROFILES

DOCS = Path(__file__).parents[2] / "docs"
OVERVIEW = (DOCS / "engines.md").read_text()
COUNTED = [each for name, each in PROFILES.items() if each.metrics and name != "engine"]


def page_of(name: str) -> str:
    return (DOCS / "engines" / f"{name}.md").read_text()


def series_of(profile: Profile) -> Iterator[Series]:
    for own in profile.among[-1:] if profile.name == "nim" else (profile,):
        yield from (*own.in_flight, *own.waiting, *own.open)
        yield from (each.series for each in (*own.witnesses, *own.counters))
        yield from (
            each for each in (own.steps, own.started, own.awake, own.paused) if each is not None
        )


def stem(name: str) -> str:
    return re.sub(r"^(vllm:|sglang:|llamacpp:|lmdeploy:|trtllm_|dynamo_component_)", "", name)


@pytest.mark.parametrize("profile", COUNTED, ids=lambda each: each.name)
def test_every_series_that_is_read_stands_on_the_page_of_its_engine(profile: Profile) -> None:
    page = page_of(profile.name)
    for series in series_of(profile):
        assert any(stem(name) in page for name in series.names), series.names
        assert all(name in page for name in series.less)


def read_as(profile: Profile, meaning: str) -> set[str] | None:
    """The names of what is read as that; none where the page tells of something else."""
    own = profile.among[-1] if profile.among else profile
    queue = own.waiting if own.queue_by_steps else ()
    moving = [each.series for each in (*own.witnesses, *own.counters)]
    lists: dict[str, Sequence[Series | None]] = {
        "in flight": (*own.in_flight, *own.waiting, *own.open),
        "waiting": own.waiting,
        "witness": (*(each.series for each in own.witnesses), *queue),
        "restart": (own.started, *moving),
        "paused": (own.paused,),
        "sleeps": (own.awake,),
    }
    series = next((found for word, found in lists.items() if word in meaning), None)
    if series is None:
        return None
    return {stem(name) for each in series if each for name in (*each.names, *each.less)}


#: Words of those pages that are no series: a label's values.
_VALUES = {"iteration_counter", "generate"}


@pytest.mark.parametrize("profile", COUNTED, ids=lambda each: each.name)
def test_what_its_page_says_is_read_as_that(profile: Profile) -> None:
    table = re.findall(r"^\| (.*) \| (.*) \|$", page_of(profile.name), re.MULTILINE)
    checked = set()
    for first, meaning in table:
        said = {stem(name) for name in re.findall(r"`(\w+_\w+)[`{]", first)} - _VALUES
        names = read_as(profile, meaning)
        if names is not None:
            assert said <= names, (meaning, said - names)
            checked |= said
    assert len(checked) >= 2


@pytest.mark.parametrize("name", [name for name in PROFILES if name != "engine"])
def test_each_engine_has_a_page_with_a_source_that_is_valid(name: str) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", page_of(name), re.DOTALL)[:1]
    (server,) = tomllib.loads(block)["servers"].values()
    assert EngineSource.model_validate(server["source"]).kind == name


def rows() -> dict[str, list[str]]:
    found = re.search(r"<!-- kinds -->\n((?:\|.*\n)+)", OVERVIEW)
    assert found is not None
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in found[1].splitlines()[2:]]
    return {kind.strip("`"): rest for kind, *rest in cells}


def test_the_overview_has_every_kind_where_it_is_read_and_its_window() -> None:
    assert set(rows()) == set(PROFILES)
    for kind, (_, where, _, window) in rows().items():
        profile = PROFILES[kind]
        assert where in (f"`{profile.path}`", "`metrics_url`") or not profile.metrics, kind
        if profile.window > timedelta(0):
            assert window == f"{profile.window.seconds} s"


@pytest.mark.parametrize(
    "page", ["engines.md", *(f"engines/{n}.md" for n in rows() if n != "engine")]
)
def test_every_link_leads_somewhere(page: str) -> None:
    here = DOCS / page
    for target in re.findall(r"\]\(([^)#]+\.\w+)[^)]*\)", here.read_text()):
        assert (here.parent / target).exists(), target
