"""A test whose program is missing says which package brings it, and may not be skipped in CI."""

import pytest

from tests.parts import needs


@pytest.fixture(autouse=True)
def _missing_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(needs.PROGRAMS, "rare-package", "no-such-program")
    monkeypatch.delenv("STEADY_REQUIRE_ALL", raising=False)


def test_without_its_program_a_test_is_skipped_with_the_package_named() -> None:
    with pytest.raises(pytest.skip.Exception, match="rare-package"):
        needs.require("rare-package")


def test_where_everything_is_required_it_fails_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEADY_REQUIRE_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="rare-package"):
        needs.require("rare-package")


def test_a_package_that_nobody_knows_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="openssh-server"):
        needs.require("openssh")


def test_with_its_program_a_test_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(needs.PROGRAMS, "dash", "sh")
    needs.require("dash")
