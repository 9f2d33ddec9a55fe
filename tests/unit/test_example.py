"""``fleet.example.toml`` is the reference: all keys, and the defaults that really hold."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from fleet.config import (
    Alerts,
    CommandRestart,
    ComposeRestart,
    DockerRestart,
    Drill,
    EngineSource,
    Fleet,
    FleetSection,
    Host,
    RebootRestart,
    RecordFields,
    RedisSource,
    Server,
    StateWords,
    StatusSource,
    Store,
    Storm,
    SystemdRestart,
)
from fleet.endpoints import Backend, Candidate, Endpoint, Gateway, PairedSamples
from fleet.engine_sources import CustomRequest
from fleet.gpu_memory import GpuMemory
from fleet.policy import DailyBudget, HostBudget, Policy, RollingBudget
from tests.parts.fleet_files import write_key
from worker.loading import examine, load

EXAMPLE = Path(__file__).parents[2] / "fleet.example.toml"

#: What every step of a ladder may have is explained once.
STEPS = ["servers.gpu-2.ladder.0", "servers.gpu-3.ladder.0"]

#: The places in the file at which each model can be looked up.
PLACES: dict[type[BaseModel], list[str]] = {
    Fleet: [""],
    FleetSection: ["fleet"],
    Alerts: ["alerts"],
    Storm: ["storm"],
    Policy: ["defaults"],
    RollingBudget: ["defaults.budget"],
    DailyBudget: ["servers.gpu-2.policy.budget"],
    Store: ["stores.main"],
    Host: ["hosts.rack-1"],
    HostBudget: ["hosts.rack-1.budget"],
    Server: ["servers.gpu-1", "servers.gpu-2"],
    Drill: ["servers.gpu-1.drill"],
    RedisSource: ["servers.gpu-1.source"],
    StatusSource: ["servers.gpu-2.source", "servers.gpu-1.source"],
    EngineSource: ["servers.gpu-5.source", "servers.gpu-6.source"],
    CustomRequest: ["servers.gpu-6.source.request"],
    RecordFields: ["servers.gpu-1.source.fields"],
    StateWords: ["servers.gpu-1.source.words"],
    DockerRestart: ["servers.gpu-1.restart", *STEPS],
    GpuMemory: ["servers.gpu-1.restart.gpu_memory"],
    ComposeRestart: ["servers.gpu-2.restart", "servers.gpu-1.restart", *STEPS],
    SystemdRestart: ["servers.gpu-3.restart", "servers.gpu-1.restart", *STEPS],
    RebootRestart: ["servers.gpu-3.ladder.0", *STEPS],
    CommandRestart: ["servers.gpu-4.restart", *STEPS],
    Gateway: ["gateway"],
    Endpoint: ["endpoints.chat"],
    PairedSamples: ["endpoints.chat.paired_samples"],
    Backend: ["endpoints.chat.backends.gpu-1"],
    Candidate: ["endpoints.chat.candidates.next"],
}


def uncommented() -> str:
    """The file with every commented default in force."""
    return re.sub(r"^#(?=[a-z_]+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)


def tables_at(place: str) -> dict[str, Any]:
    table: Any = tomllib.loads(uncommented())
    for key in filter(None, place.split(".")):
        table = table[int(key) if key.isdecimal() else key]
    shown: dict[str, Any] = table
    return shown


def test_it_loads_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    host_key = write_key(tmp_path / ".ssh" / "steady").export_public_key().decode()
    (tmp_path / ".ssh" / "known_hosts").write_text(f"rack-1.internal {host_key}")
    examined = examine(EXAMPLE, environment={"STEADY_WEBHOOK": "http://127.0.0.1"})
    assert [str(each) for each in examined.problems + examined.warnings] == []


@pytest.mark.parametrize("model", PLACES, ids=lambda model: model.__name__)
def test_every_key_stands_in_it(model: type[BaseModel]) -> None:
    shown = {key for place in PLACES[model] for key in tables_at(place)}
    assert set(model.model_fields) <= shown


def commented_out() -> Iterator[tuple[str, type[BaseModel], str, object]]:
    """Place, model, key and value of each line that is commented out."""
    commented = set(re.findall(r"^#([a-z_]+) = ", EXAMPLE.read_text(), flags=re.MULTILINE))
    as_it_stands = tomllib.loads(EXAMPLE.read_text())
    first: list[tuple[type[BaseModel], str]]
    first = [(model, place) for model, (place, *_) in PLACES.items()]
    first.append((EngineSource, PLACES[EngineSource][1]))
    for model, place in first:
        given: Any = as_it_stands
        for key in filter(None, place.split(".")):
            given = given[int(key)] if key.isdecimal() else given.get(key, {})
        for key, value in tables_at(place).items():
            if key in commented and key not in given and key in model.model_fields:
                yield place, model, key, value


def has_default(model: type[BaseModel], key: str) -> bool:
    return model.model_fields[key].default not in (None, (), PydanticUndefined)


@pytest.mark.parametrize(
    ("place", "model", "key", "value"),
    [each for each in commented_out() if has_default(each[1], each[2])],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_is_commented_out_is_the_default(
    place: str, model: type[BaseModel], key: str, value: object
) -> None:
    given = {**required(model, place), key: value}
    assert getattr(model.model_validate(given), key) == model.model_fields[key].default


def required(model: type[BaseModel], place: str) -> dict[str, Any]:
    table = tables_at(place)
    return {key: table[key] for key, field in model.model_fields.items() if field.is_required()}


def test_where_there_is_no_default_the_comment_says_so() -> None:
    without = {key for _, model, key, _ in commented_out() if not has_default(model, key)}
    assert without == {
        "temporal_ui",
        "price_per_hour",
        "provider",
        "redact",
        "restarts_at_once",
        "notice",
        "page",
        "dead_mans_switch",
        "username",
        "password",
        "token",
        "admin_token",
        "admin_urls",
        "api_key",
        "metrics_url",
        "named_ranks",
        "listen",
        "ca",
        "socket",
        "model",
        "cli",
        "identity",
        "freeze",
        "thaw",
        "kernel_log",
        "group",
        "free",
        "gpus",
        "stack_dump",
    }
    text = EXAMPLE.read_text()
    for key in without:
        # A key of that name may stand elsewhere, and have a default there.
        befores = [
            text[: each.start()].rsplit("\n\n", 1)[-1] for each in re.finditer(f"#{key} = ", text)
        ]
        is_said = [re.search("[Nn]o default|Without it", before) for before in befores]
        assert any(is_said), f"{key}: {befores}"


def test_with_every_default_written_out_it_is_the_same_fleet(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(uncommented())
    written = load(file, files_are_here=False)
    as_it_stands = load(EXAMPLE, files_are_here=False)
    for name in as_it_stands.servers:
        assert written.policy(name) == as_it_stands.policy(name)
