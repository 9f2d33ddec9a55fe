"""The state folder: one owner at a time, and ports that stay the same."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from worker.errors import SettingError, SetupError
from worker.settings import Settings
from worker.state import (
    TemporalAddress,
    is_free,
    made,
    note_store,
    note_temporal,
    noted_store,
    noted_temporal,
    owned,
    port_for,
)

_WHERE = TemporalAddress("127.0.0.1:7233", "http://127.0.0.1:8233")


@contextmanager
def _taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


def test_a_second_owner_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    with (
        owned(tmp_path),
        pytest.raises(SetupError, match=rf"PID {os.getpid()}.*STEADY_STATE_DIR"),
        owned(tmp_path),
    ):
        pytest.fail("two owners")


def test_it_can_be_owned_again_afterwards(tmp_path: Path) -> None:
    with owned(tmp_path):
        pass
    with owned(tmp_path) as folder:
        assert folder == tmp_path.resolve()


def test_a_folder_that_cannot_be_made_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SetupError, match=r"file/state.*STEADY_STATE_DIR"),
        owned(tmp_path / "file" / "state"),
    ):
        pytest.fail("owned what can't be")


@pytest.mark.parametrize("folder", ["/dev/null", "/proc/steady", "/proc/self"])
def test_what_can_be_no_state_folder_is_one_line_with_its_variable(folder: str) -> None:
    with pytest.raises(SettingError, match=rf"{folder} can't be used \(.*STEADY_STATE_DIR"):
        made(Path(folder))


def test_the_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    with owned(tmp_path / "state") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_setting_that_is_empty_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEADY_STATE_DIR", "")
    assert Settings().state_dir == Path(".steady")


def test_the_preferred_port_is_taken_where_it_is_free(tmp_path: Path) -> None:
    with _taken() as port:
        pass
    assert port_for(tmp_path, "temporal", port) == port


def test_a_taken_port_is_passed_over(tmp_path: Path) -> None:
    with _taken() as port:
        assert not is_free(port)
        assert port_for(tmp_path, "temporal", port) != port


def test_the_next_run_gets_the_port_of_the_last(tmp_path: Path) -> None:
    first = port_for(tmp_path, "temporal", None)
    assert port_for(tmp_path, "temporal", None) == first


def test_two_servers_never_get_one_port(tmp_path: Path) -> None:
    first = port_for(tmp_path, "temporal", None)
    assert port_for(tmp_path, "valkey", first) != first


def test_a_damaged_memory_of_ports_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text("[broken")
    assert port_for(tmp_path, "temporal", None) > 0


def test_other_commands_find_the_running_temporal(tmp_path: Path) -> None:
    with owned(tmp_path):
        note_temporal(tmp_path, _WHERE)
        assert noted_temporal(tmp_path) == _WHERE
        note_temporal(tmp_path, None)
        assert noted_temporal(tmp_path) is None


def test_other_workers_find_the_running_valkey(tmp_path: Path) -> None:
    with owned(tmp_path):
        assert noted_store(tmp_path) is None
        note_store(tmp_path, "redis://127.0.0.1:1/0")
        assert noted_store(tmp_path) == "redis://127.0.0.1:1/0"
    assert noted_store(tmp_path) is None


def test_what_a_killed_run_noted_is_not_believed(tmp_path: Path) -> None:
    with owned(tmp_path):
        note_temporal(tmp_path, _WHERE)
    assert noted_temporal(tmp_path) is None
