"""A bundle of evidence on a disk that may be full, and in a text that may begin anywhere."""

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities import bundle as bundle_module
from activities.bundle import Bundle
from fleet.redaction import HIDDEN

pytestmark = pytest.mark.anyio

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECRET = "hunter2isnotenoughofasecret"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return Bundle(tmp_path, "gpu-1@20261130T120000.000Z", AT)


def text(bundle: Bundle, name: str) -> str:
    return (bundle.folder / name).read_text()


async def test_what_is_kept_is_counted_and_for_the_worker_alone(bundle: Bundle) -> None:
    await bundle.keep("logs.txt", b"up\n")
    await bundle.keep("unit.txt", b"Id=x\n")
    evidence = bundle.evidence()
    assert (evidence.path, evidence.size) == (str(bundle.folder), 8)
    assert (bundle.folder / "logs.txt").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("cut", range(len("HF_TOKEN="), len("HF_TOKEN=") + len(SECRET)))
async def test_a_secret_whose_name_was_cut_off_is_not_kept(bundle: Bundle, cut: int) -> None:
    whole = f"HF_TOKEN={SECRET}\nthe next line\n"
    await bundle.keep("logs.txt", whole[cut:].encode(), cut=True)
    assert text(bundle, "logs.txt") == "the next line\n"


async def test_a_secret_that_steady_has_used_is_hidden_in_whatever_form(bundle: Bundle) -> None:
    bundle.hide("xyzzy-plugh")
    await bundle.keep("page.txt", b"you sent xyzzy-plugh\n")
    assert text(bundle, "page.txt") == f"you sent {HIDDEN}\n"


async def test_bytes_that_are_no_text_are_kept_as_far_as_they_are(bundle: Bundle) -> None:
    await bundle.keep("logs.txt", b"\xff\xfeup\x00\n")
    assert "up" in text(bundle, "logs.txt")


async def test_a_text_that_redaction_makes_longer_stays_in_its_bound(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_module, "KEEP", 1000)
    await bundle.keep("logs.txt", b"pwd=a\n" * 160)
    kept = text(bundle, "logs.txt")
    assert len(kept) <= 1000
    assert set(kept.splitlines()) == {f"pwd={HIDDEN}"}


async def test_a_disk_that_is_full_is_noted_and_raises_nothing(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bundle.keep("container.json", b"{}\n")

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("activities.bundle.os.open", full)
    await bundle.keep("logs.txt", b"up\n")
    evidence = bundle.evidence()
    assert evidence.missing == ["logs.txt: can't be written: no space left on device"]
    assert evidence.size == 3


async def test_nothing_is_written_through_a_link_or_over_a_file(
    bundle: Bundle, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("x")
    bundle.folder.mkdir(parents=True)
    (bundle.folder / "logs.txt").symlink_to(precious)
    await bundle.keep("logs.txt", b"up\n")
    assert precious.read_text() == "x"
    assert len(bundle.missing) == 1


async def test_what_is_missing_is_bounded_and_redacted(bundle: Bundle) -> None:
    for n in range(100):
        bundle.lack(f"file-{n}", f"password={SECRET} " + "x" * 500)
    missing = bundle.evidence().missing
    assert len(missing) <= 30
    assert max(map(len, missing)) <= 200
    assert SECRET not in str(missing)
