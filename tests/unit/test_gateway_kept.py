"""What was set in a gateway, as a value and as a file."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from fleet.contracts.gateway import Lease
from fleet.endpoints import Candidate, Endpoint
from gateway.kept import LONGEST, Added, Kept, Sample, Weight
from worker.errors import SettingError, SetupError
from worker.gateway_state import StateFile, state_file

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def lease(name: str = "a", until: datetime = NOW + HOUR) -> Lease:
    return Lease(id=name, holder="ann", until=until)


def endpoints(sample: float = 0, weight: float = 1) -> dict[str, Endpoint]:
    spec = {
        "backends": {"gpu-1": {"url": "http://a:1", "weight": weight}},
        "candidates": {"next": {"url": "http://b:1", "sample": sample}},
    }
    return {"chat": Endpoint.model_validate(spec)}


KEPT = (
    Kept()
    .leased("gpu-1", lease())
    .sampled(Sample(endpoint="chat", candidate="next", percent=5, instead_of=0))
    .weighed(Weight(endpoint="chat", backend="gpu-1", weight=2, instead_of=1))
    .added(Added(endpoint="chat", candidate="new", spec=Candidate(url="http://c:1")))
)


def test_a_lease_that_ran_out_is_out() -> None:
    kept = Kept().leased("gpu-1", lease("a", NOW)).leased("gpu-1", lease("b"))
    assert set(kept.at(NOW).leases["gpu-1"]) == {"b"}
    assert kept.at(NOW + HOUR).leases == {}


def test_a_lease_is_no_longer_than_it_may_be_whatever_a_clock_said() -> None:
    kept = Kept().leased("gpu-1", lease(until=NOW + timedelta(days=4000)))
    assert kept.at(NOW).drained_until("gpu-1") == NOW + LONGEST


def test_what_fits_the_fleet_file_stays() -> None:
    assert KEPT.fitting(endpoints()) == (KEPT, [])


def test_what_the_fleet_file_says_since_then_counts() -> None:
    kept, gone = KEPT.fitting(endpoints(sample=1, weight=3))
    assert (kept.samples, kept.weights) == ((), ())
    assert gone == ["the sample of chat/next", "the weight of chat/gpu-1"]


def test_what_is_of_no_server_any_more_is_dropped_and_said() -> None:
    kept, gone = KEPT.fitting({})
    assert kept == Kept()
    assert gone == [
        "the leases of gpu-1",
        "the candidate chat/new",
        "the sample of chat/next",
        "the weight of chat/gpu-1",
    ]


def test_what_is_set_back_to_the_fleet_file_is_nothing_that_was_set() -> None:
    back = KEPT.sampled(Sample(endpoint="chat", candidate="next", percent=0, instead_of=0)).weighed(
        Weight(endpoint="chat", backend="gpu-1", weight=1, instead_of=1)
    )
    assert back.released("gpu-1", "a").removed("chat", "new") == Kept()


def test_a_candidate_that_the_fleet_file_has_since_then_is_the_files() -> None:
    spec = {
        "backends": {"gpu-1": {"url": "http://a:1"}},
        "candidates": {"new": {"url": "http://b:1"}, "next": {"url": "http://b:1"}},
    }
    kept, gone = KEPT.fitting({"chat": Endpoint.model_validate(spec)})
    assert (kept.candidates, gone) == ((), ["the candidate chat/new"])


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    StateFile(tmp_path).write(KEPT)
    assert StateFile(tmp_path).read() == KEPT
    assert [file.name for file in tmp_path.iterdir()] == ["gateway.json"]
    assert (tmp_path / "gateway.json").stat().st_mode & 0o777 == 0o600


def test_without_a_file_nothing_was_set(tmp_path: Path) -> None:
    assert StateFile(tmp_path).read() == Kept()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\x00",
        KEPT.model_dump_json().encode()[:-9],
        b'{"version": 2}',
        b'{"version": 1, "more": 1}',
        b'{"leases": {"gpu-1": {"a": {"id": "a", "holder": "ann", "until": "soon"}}}}',
    ],
)
def test_a_file_that_cant_be_read_is_told_and_kept_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "gateway.json").write_bytes(content)
    file = StateFile(tmp_path)
    with structlog.testing.capture_logs() as logs:
        assert file.read() == Kept()
    file.write(KEPT)
    (aside,) = tmp_path.glob("gateway.json.unreadable-*")
    assert aside.read_bytes() == content
    assert [(each["log_level"], each["kept_aside"]) for each in logs] == [("error", str(aside))]


def test_a_file_that_is_too_large_is_kept_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.gateway_state._LARGEST", 10)
    StateFile(tmp_path).write(KEPT)
    assert StateFile(tmp_path).read() == Kept()
    assert list(tmp_path.glob("gateway.json.unreadable-*"))


def test_what_can_neither_be_read_nor_put_aside_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gateway.json").write_bytes(b"?")

    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(SettingError, match=r"or put aside \(permission denied\): remove it"):
        StateFile(tmp_path).read()


@pytest.mark.parametrize("fails", ["os.fsync", "pathlib.Path.replace"])
def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    file = StateFile(tmp_path)
    file.write(KEPT)

    def refuse(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(fails, refuse)
        with pytest.raises(OSError, match="Input/output error"):
            file.write(Kept())
    assert file.read() == KEPT
    assert [each.name for each in tmp_path.iterdir()] == ["gateway.json"]


def test_it_is_synced_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(number: int) -> None:
        did.append("sync")
        sync(number)

    def named(self: Path, to: Path) -> Path:
        did.append("name")
        return replace(self, to)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", named)
    StateFile(tmp_path).write(KEPT)
    assert did == ["sync", "name", "sync"]


def test_a_folder_is_one_gateways_own(tmp_path: Path) -> None:
    with (
        state_file(tmp_path),
        pytest.raises(SetupError, match="another gateway keeps its state in"),
        state_file(tmp_path),
    ):
        pass
    with state_file(tmp_path) as file:
        assert file.read() == Kept()
