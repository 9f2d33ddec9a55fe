"""Which evidence goes, and that nothing else does."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from activities.retention import Retention
from fleet.retention import UNTOUCHED, Kept, Limits, leaving

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DAY = timedelta(days=1)
MONTH = Limits(span=30 * DAY, size=1000)


def kept(incident: str, age: timedelta, size: int = 100) -> Kept:
    return Kept(incident, f"{incident}-{age}", NOW - age, size)


def gone(*bundles: Kept, limits: Limits = MONTH, still_open: str = "") -> list[Kept]:
    return leaving(bundles, limits, NOW, lambda incident: incident == still_open)


def test_what_is_too_old_goes() -> None:
    old, young = kept("a", 31 * DAY), kept("b", 29 * DAY)
    assert gone(young, old) == [old]


def test_where_it_is_too_much_the_oldest_goes_first_and_no_more_than_needed() -> None:
    bundles = [kept(str(n), n * DAY, 300) for n in range(1, 6)]
    assert gone(*bundles) == [bundles[4], bundles[3]]


def test_the_newest_of_an_open_incident_stays_whatever_the_limits_say() -> None:
    first, last = kept("a", 50 * DAY, 5000), kept("a", 40 * DAY, 5000)
    other = kept("b", 2 * DAY, 5000)
    assert gone(first, last, other, still_open="a") == [first, other]
    assert gone(first, last, other) == [first, last, other]


def test_what_may_still_be_written_stays() -> None:
    assert gone(kept("a", UNTOUCHED / 2, 5000)) == []


def test_nothing_goes_where_there_is_nothing() -> None:
    assert gone() == []


class Guards:
    def __init__(self, **held: str) -> None:
        self.held, self.asked = held, list[str]()
        self.broken = False

    async def open_incident(self, server: str) -> str | None:
        self.asked.append(server)
        if self.broken:
            raise RuntimeError("Temporal is out of reach")
        return self.held.get(server)


def write(state_dir: Path, incident: str, age: timedelta, size: int = 100) -> Path:
    at = datetime.now(UTC) - age
    folder = state_dir / "evidence" / incident / f"{at:%Y%m%dT%H%M%S.%f}Z"
    folder.mkdir(parents=True)
    (folder / "logs.txt").write_bytes(b"x" * size)
    return folder


OLD, OTHER = "gpu-1@20261001T000000.000Z", "gpu-2@20261002T000000.000Z"

pytestmark = pytest.mark.anyio


async def test_old_evidence_leaves_the_disk_with_its_folder(tmp_path: Path) -> None:
    old, young = write(tmp_path, OLD, 40 * DAY), write(tmp_path, OTHER, DAY)
    await Retention(tmp_path, MONTH, Guards()).tidy()
    assert not old.parent.exists()
    assert (young / "logs.txt").exists()
    assert list((tmp_path / "evidence" / ".going").iterdir()) == []


async def test_an_open_incident_is_asked_for_and_keeps_its_newest(tmp_path: Path) -> None:
    first, last = write(tmp_path, OLD, 45 * DAY), write(tmp_path, OLD, 40 * DAY)
    closed = write(tmp_path, OTHER, 40 * DAY)
    guards = Guards(**{"gpu-1": OLD, "gpu-2": "gpu-2@20261130T000000.000Z"})
    await Retention(tmp_path, MONTH, guards).tidy()
    assert (first.exists(), last.exists(), closed.exists()) == (False, True, False)
    assert sorted(guards.asked) == ["gpu-1", "gpu-2"]


async def test_nobody_is_asked_where_nothing_would_go(tmp_path: Path) -> None:
    write(tmp_path, OLD, DAY)
    guards = Guards()
    await Retention(tmp_path, MONTH, guards).tidy()
    assert guards.asked == []


async def test_where_nobody_can_say_what_is_open_the_newest_of_each_stays(tmp_path: Path) -> None:
    first, last = write(tmp_path, OLD, 45 * DAY), write(tmp_path, OLD, 40 * DAY)
    guards = Guards()
    guards.broken = True
    await Retention(tmp_path, MONTH, guards).tidy()
    assert (first.exists(), last.exists()) == (False, True)


async def test_the_incident_at_hand_is_open_without_asking(tmp_path: Path) -> None:
    mine = write(tmp_path, OLD, 40 * DAY)
    guards = Guards()
    await Retention(tmp_path, MONTH, guards).tidy(OLD)
    assert mine.exists()
    assert guards.asked == []


async def test_only_bundles_on_the_shelf_are_touched(tmp_path: Path) -> None:
    outside = write(tmp_path / "elsewhere", OLD, 40 * DAY)
    shelf = tmp_path / "evidence"
    shelf.mkdir()
    (shelf / "linked@x").symlink_to(outside.parent, target_is_directory=True)
    incident = shelf / "gpu-1@y"
    incident.mkdir()
    (incident / outside.name).symlink_to(outside, target_is_directory=True)
    note = incident / "20260101T000000.000000Z.txt"
    note.write_text("a person's own")
    (incident / "own folder").mkdir()
    (shelf / ".going").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    await Retention(tmp_path, MONTH, Guards()).tidy()
    assert (outside / "logs.txt").exists()
    assert note.read_text() == "a person's own"
    assert (incident / outside.name).is_symlink()
    assert (incident / "own folder").is_dir()


async def test_a_link_inside_of_a_bundle_is_not_followed(tmp_path: Path) -> None:
    old, precious = write(tmp_path, OLD, 40 * DAY), tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (old / "link").symlink_to(precious, target_is_directory=True)
    await Retention(tmp_path, MONTH, Guards()).tidy()
    assert not old.exists()
    assert (precious / "file").exists()


async def test_what_another_one_left_half_deleted_is_deleted(tmp_path: Path) -> None:
    going = tmp_path / "evidence" / ".going" / "20260101T000000.000000Z-1-1"
    going.mkdir(parents=True)
    (going / "logs.txt").write_text("x")
    await Retention(tmp_path, MONTH, Guards()).tidy()
    assert not going.exists()


async def test_two_workers_on_one_disk_do_not_hinder_each_other(tmp_path: Path) -> None:
    for n in range(30):
        write(tmp_path, f"gpu-{n}@x", 40 * DAY)
    await asyncio.gather(*(Retention(tmp_path, MONTH, Guards()).tidy() for _ in range(4)))
    shelf = tmp_path / "evidence"
    assert [each.name for each in shelf.iterdir()] == [".going"]
    assert list((shelf / ".going").iterdir()) == []


async def test_a_shelf_that_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    await Retention(tmp_path / "nowhere", MONTH, Guards()).tidy()
