"""Durations are written as people write them, and come back the same."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from fleet.duration_fields import Duration
from fleet.durations import brief, parse, show


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120s", 120),
        ("3m", 180),
        ("24h", 86_400),
        ("7d", 604_800),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        (" 5s ", 5),
        ("0s", 0),
        ("366d", 366 * 86_400),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, seconds: float) -> None:
    assert parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "5 s", "5sec", "3M", "1h-5m", "five", "1e3s", "٣s", "5s\n6"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r'"120s"'):
        parse(text)


@pytest.mark.parametrize("text", ["1s1s", "1h30m1h"])
def test_a_unit_stands_once(text: str) -> None:
    with pytest.raises(ValueError, match="unit twice"):
        parse(text)


@pytest.mark.parametrize("text", ["367d", "9" * 400 + "s", "99999999h"])
def test_more_than_a_year_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="year"):
        parse(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (90, "1m30s"),
        (86_400, "1d"),
        (93_784.005, "1d2h3m4s5ms"),
        (-90, "-1m30s"),
    ],
)
def test_a_duration_is_shown_in_its_largest_units(seconds: float, shown: str) -> None:
    assert show(timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.2, "0s"), (59.6, "1m"), (3661, "1h1m"), (93_784, "1d2h"), (-5, "0s")],
)
def test_in_a_sentence_two_units_are_enough(seconds: float, shown: str) -> None:
    assert brief(timedelta(seconds=seconds)) == shown


@settings(deadline=None)
@given(st.integers(0, 366 * 86_400_000))
def test_what_is_shown_is_read_back_unchanged(milliseconds: int) -> None:
    span = timedelta(milliseconds=milliseconds)
    assert parse(show(span)) == span


class Model(BaseModel):
    span: Duration


def test_a_field_takes_text_travels_as_text_and_refuses_a_bare_number() -> None:
    model = Model.model_validate({"span": "90s"})
    assert model.model_dump_json() == '{"span":"1m30s"}'
    assert Model.model_validate_json(model.model_dump_json()) == model
    assert Model(span=timedelta(seconds=90)) == model
    for number in (90, 90.0, True, None):
        with pytest.raises(ValidationError, match=r'"120s"'):
            Model.model_validate({"span": number})
