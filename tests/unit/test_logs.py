"""Everything that is logged comes out in one form, whoever logs it."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest
import structlog

from worker.logs import set_up_logging
from worker.settings import Settings


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_as_json_each_line_is_an_object_with_what_was_said(tmp_path: Path) -> None:
    set_up_logging(Settings(log_format="json"), to=tmp_path / "logs" / "log")
    structlog.get_logger("ours").info("working", task_queue="steady")
    logging.getLogger("library").warning("slow: %s", 3)
    ours, library = map(json.loads, (tmp_path / "logs" / "log").read_text().splitlines())
    assert (ours["event"], ours["level"], ours["task_queue"]) == ("working", "info", "steady")
    assert (library["event"], library["level"], library["logger"]) == (
        "slow: 3",
        "warning",
        "library",
    )
    assert ours["timestamp"].endswith("Z")


def test_the_level_is_that_of_the_settings(tmp_path: Path) -> None:
    set_up_logging(Settings(log_level="warning"), to=tmp_path / "log")
    structlog.get_logger("ours").info("quiet")
    structlog.get_logger("ours").warning("loud")
    text = (tmp_path / "log").read_text()
    assert "loud" in text
    assert "quiet" not in text


def test_requests_of_libraries_are_not_logged_one_by_one(tmp_path: Path) -> None:
    set_up_logging(Settings(log_level="debug"), to=tmp_path / "log")
    logging.getLogger("httpx").info("HTTP Request: POST https://secret.example/hook")
    assert "secret.example" not in (tmp_path / "log").read_text()


def _log_in(password: str) -> None:
    message = f"refused after {len(password)} characters"
    raise RuntimeError(message)


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_shows_where_and_no_local_variable(tmp_path: Path, form: str) -> None:
    password = token_hex(16)
    set_up_logging(Settings(log_format=form), to=tmp_path / "log")
    try:
        _log_in(password)
    except RuntimeError:
        structlog.get_logger("ours").exception("failed")
    text = (tmp_path / "log").read_text()
    assert "refused after 32 characters" in text
    assert "_log_in" in text
    assert password not in text
