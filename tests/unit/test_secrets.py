"""A secret is read where it is used, and what is said of it never holds it."""

from pathlib import Path

import pytest

from activities.secrets import SecretError, resolve
from fleet.config import SecretRef


def test_a_variable_and_a_file_both_give_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEADY_TEST_SECRET", "of the environment")
    file = tmp_path / "secret"
    file.write_bytes(b"of the file\r\n")
    assert resolve(SecretRef(env="STEADY_TEST_SECRET")) == "of the environment"
    assert resolve(SecretRef(file=str(file))) == "of the file"


def test_a_change_is_seen_at_once(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    assert resolve(SecretRef(file=str(file))) == "old"
    file.write_text("new")
    assert resolve(SecretRef(file=str(file))) == "new"


def test_a_file_in_the_home_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "secret").write_text("at home")
    assert resolve(SecretRef(file="~/secret")) == "at home"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"s3cret\nmore", "more than one line"),
        (b"s3cret\xff\xfe", "more than one line"),
        (b"s3cret" * 10_000, "16 KiB"),
    ],
)
def test_a_file_that_holds_no_secret_is_named_and_not_quoted(
    tmp_path: Path, content: bytes, said: str
) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(SecretError) as raised:
        resolve(SecretRef(file=str(file)))
    assert said in str(raised.value)
    assert str(file) in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_what_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEADY_TEST_SECRET", raising=False)
    for ref, name in [
        (SecretRef(env="STEADY_TEST_SECRET"), "STEADY_TEST_SECRET"),
        (SecretRef(file=str(tmp_path / "none")), "none"),
        (SecretRef(file=str(tmp_path)), str(tmp_path)),
    ]:
        with pytest.raises(SecretError) as raised:
            resolve(ref)
        assert name in str(raised.value)
