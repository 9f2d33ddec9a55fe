"""What a worker may publish, and what is said of what can't be understood."""

import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_core import to_json

from fleet.config import RecordFields, RedisSource, StateWords
from fleet.readings import Reading, ReadStatus, WorkState
from fleet.records import from_json, from_record

AT = datetime(2026, 11, 30, 12, 0, 30, tzinfo=UTC)
BEAT = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
UNIX = int(BEAT.timestamp())
SOURCE = RedisSource(key="worker:1")


def read(heartbeat: object = UNIX, source: RedisSource = SOURCE, **rest: object) -> Reading:
    return from_record("gpu-1", {"state": "idle", "heartbeat": heartbeat, **rest}, source, AT)


def timed(form: str) -> RedisSource:
    return RedisSource.model_validate({"key": "worker:1", "time": form})


@pytest.mark.parametrize(
    ("published", "meant"),
    [
        (UNIX, BEAT),
        (float(UNIX) + 0.5, BEAT + timedelta(seconds=0.5)),
        (str(UNIX), BEAT),
        (f" {UNIX}.25 \n", BEAT + timedelta(seconds=0.25)),
        (f"{UNIX / 1e9}e9", BEAT),
        (UNIX * 1000 + 250, BEAT + timedelta(seconds=0.25)),
        (str(UNIX * 1000), BEAT),
        ("2026-11-30T12:00:00Z", BEAT),
        ("2026-11-30t12:00:00z", BEAT),
        ("2026-11-30 13:00:00+01:00", BEAT),
        ("2026-11-30T12:00:00.250+0000", BEAT + timedelta(seconds=0.25)),
        ("2026-11-30T12:00:00.250000999Z", BEAT + timedelta(seconds=0.25)),
    ],
)
def test_a_time_is_read_in_every_form_without_being_told_which(
    published: object, meant: datetime
) -> None:
    reading = read(published)
    assert (reading.status, reading.heartbeat) == (ReadStatus.OK, meant)
    assert reading.heartbeat is not None
    assert reading.heartbeat.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("published", "said"),
    [
        (None, "source.fields.heartbeat"),
        ("", "is empty"),
        ("  ", "is empty"),
        (True, "true or false"),
        (False, "true or false"),
        (math.nan, "no finite number"),
        (math.inf, "no finite number"),
        ("nan", "no time"),
        ("Infinity", "no time"),
        ("1e999", "no finite number"),
        (10**400, "no finite number"),
        ([UNIX], "a list"),
        ({"at": UNIX}, "an object"),
        (-UNIX, "no time from 2001 to 2099"),
        (0, "no time from 2001 to 2099"),
        (86_400.5, "an uptime or a counter?"),
        (UNIX * 10**6, "looks like microseconds"),
        (str(UNIX * 10**9), "looks like nanoseconds"),
        (10**25, "no time from 2001 to 2099"),
        ("9" * 65, "65 characters"),
        ("yesterday", "'yesterday', no time"),
        ("2026-11-30T12:00:00", "append Z"),
        ("2026-11-30", "append Z"),
        ("0001-01-01T00:00:00+23:59", "2001 to 2099"),
        ("9999-12-31T23:59:59-23:59", "2001 to 2099"),
        ("2026-02-30T00:00:00Z", "no time"),
        ("\x1b[2J", "'?[2J'"),
    ],
)
def test_a_time_that_cannot_be_understood_is_one_line_with_field_and_remedy(
    published: object, said: str
) -> None:
    reading = read(published)
    assert reading.status is ReadStatus.UNREADABLE
    assert reading.heartbeat is None
    assert "heartbeat" in reading.detail
    assert said in reading.detail
    assert "publish" in reading.detail or "append Z" in reading.detail
    assert reading.detail.isprintable()


def test_a_fixed_format_reads_its_own_form() -> None:
    assert read(UNIX, timed("seconds")).heartbeat == BEAT
    assert read(str(UNIX * 1000), timed("milliseconds")).heartbeat == BEAT
    assert read("2026-11-30T12:00:00Z", timed("iso8601")).heartbeat == BEAT


@pytest.mark.parametrize(
    ("form", "published", "said"),
    [
        ("seconds", UNIX * 1000, 'set time = "milliseconds"'),
        ("milliseconds", UNIX, 'set time = "seconds"'),
        ("seconds", "2026-11-30T12:00:00Z", "no number of seconds"),
        ("iso8601", UNIX, 'set time = "auto"'),
        ("iso8601", str(UNIX), "no time"),
    ],
)
def test_a_fixed_format_refuses_another_and_names_the_setting(
    form: str, published: object, said: str
) -> None:
    reading = read(published, timed(form))
    assert reading.status is ReadStatus.UNREADABLE
    assert said in reading.detail


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("processing", WorkState.PROCESSING),
        ("BUSY", WorkState.PROCESSING),
        (" Running ", WorkState.PROCESSING),
        ("Ready", WorkState.IDLE),
        ("FAILED", WorkState.ERROR),
        ("Booting", WorkState.LOADING),
    ],
)
def test_state_words_are_read_without_regard_to_case(word: str, meant: WorkState) -> None:
    assert read(state=word).state is meant


def test_an_unknown_word_is_kept_and_is_no_error() -> None:
    reading = read(state="Draining")
    assert (reading.status, reading.state, reading.word) == (
        ReadStatus.OK,
        WorkState.OTHER,
        "Draining",
    )


def test_the_operators_own_words_replace_the_usual_ones() -> None:
    source = RedisSource(key="k", words=StateWords(processing=("2", "Rechnet")))
    assert read(state=2, source=source).state is WorkState.PROCESSING
    assert read(state="RECHNET", source=source).state is WorkState.PROCESSING
    assert read(state="processing", source=source).state is WorkState.OTHER


@pytest.mark.parametrize("state", [None, "", "  ", True, [], ["busy"], {"is": "busy"}])
def test_a_state_that_is_missing_or_no_word_is_unreadable(state: object) -> None:
    reading = read(state=state)
    assert reading.status is ReadStatus.UNREADABLE
    assert "'state'" in reading.detail
    assert "publish" in reading.detail


def test_fields_have_the_names_that_the_operator_gives() -> None:
    source = RedisSource(
        key="k",
        fields=RecordFields(state="s", heartbeat="hb", progress="step", job="task", process="pid"),
    )
    record = {"s": "busy", "hb": UNIX, "step": 7, "task": "render-12", "pid": 4711}
    reading = from_record("gpu-1", record, source, AT)
    assert reading.state is WorkState.PROCESSING
    assert (reading.progress, reading.job, reading.process) == ("7", "render-12", "4711")


def test_a_dotted_name_reaches_into_nested_json() -> None:
    source = RedisSource(
        key="k", fields=RecordFields(state="worker.state", heartbeat="worker.seen.at")
    )
    raw = json.dumps({"worker": {"state": "busy", "seen": {"at": UNIX}}})
    assert from_json("gpu-1", raw, source, AT).heartbeat == BEAT


def test_a_field_that_really_has_a_dot_in_its_name_goes_first() -> None:
    source = RedisSource(key="k", fields=RecordFields(state="worker.state"))
    record = {"worker.state": "busy", "worker": {"state": "idle"}, "heartbeat": UNIX}
    assert from_record("gpu-1", record, source, AT).state is WorkState.PROCESSING


def test_a_dotted_name_through_something_that_is_no_object_is_a_missing_field() -> None:
    source = RedisSource(key="k", fields=RecordFields(heartbeat="state.at"))
    reading = read(source=source)
    assert reading.status is ReadStatus.UNREADABLE
    assert "no field 'state.at'" in reading.detail


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "{",
        "<html>502</html>",
        '{"state": "busy"} trailing',
        "[" * 60_000,
        b"\xff\xfe\x00",
        "7" * 5000,
    ],
)
def test_what_is_no_json_says_so(raw: str | bytes) -> None:
    reading = from_json("gpu-1", raw, SOURCE, AT)
    assert reading.status is ReadStatus.UNREADABLE
    assert "no JSON" in reading.detail


@pytest.mark.parametrize("raw", ["[]", "null", '"busy"', "7", "true"])
def test_json_that_is_no_object_says_so(raw: str) -> None:
    reading = from_json("gpu-1", raw, SOURCE, AT)
    assert reading.status is ReadStatus.UNREADABLE
    assert "no object" in reading.detail


def test_optional_fields_may_be_missing_null_or_of_any_type() -> None:
    bare = read()
    assert (bare.progress, bare.job, bare.process) == (None, None, None)
    odd = read(progress={"b": 1, "a": 2}, job=None, process=[1, 2])
    assert (odd.progress, odd.job, odd.process) == ('{"a": 2, "b": 1}', None, "[1, 2]")


def test_long_opaque_values_still_differ_where_only_their_tails_do() -> None:
    one, other = read(progress="x" * 500 + "1"), read(progress="x" * 500 + "2")
    assert one.progress != other.progress
    assert one.progress == read(progress="x" * 500 + "1").progress


def test_a_long_job_is_cut_for_people() -> None:
    job = read(job="j" * 500).job
    assert job is not None
    assert len(job) == 80
    assert job.endswith("…")


def test_control_characters_never_reach_a_terminal() -> None:
    reading = read(job="\x1b]0;owned\x07job\n2", state="pro\x00cessing")
    assert reading.job is not None
    assert reading.job.isprintable()
    assert reading.word.isprintable()


#: The first text that Hypothesis draws on a machine takes seconds: its tables are made then.
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _seconds(year: int) -> int:
    return int(datetime(year, 6, 1, tzinfo=UTC).timestamp())


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@quick
@given(
    record=st.dictionaries(st.sampled_from(list(RecordFields().model_dump().values())), anything)
)
def test_any_record_at_all_gives_a_reading_that_can_travel(record: dict[str, object]) -> None:
    reading = from_record("gpu-1", record, SOURCE, AT)
    assert TypeAdapter(Reading).validate_json(to_json(reading)) == reading
    assert (reading.status is ReadStatus.OK) == (reading.heartbeat is not None)
    assert len(to_json(reading)) < 2500


@quick
@given(raw=st.binary(max_size=300))
def test_any_bytes_at_all_give_a_reading(raw: bytes) -> None:
    assert from_json("gpu-1", raw, SOURCE, AT).status is not ReadStatus.MISSING


@quick
@given(st.integers(_seconds(2001), _seconds(2099)), st.integers(0, 999_999))
def test_auto_tells_seconds_from_milliseconds_for_every_time_that_can_be(
    second: int, micro: int
) -> None:
    moment = datetime.fromtimestamp(second, UTC) + timedelta(microseconds=micro)
    seconds, milliseconds = read(moment.timestamp()), read(int(moment.timestamp() * 1000))
    assert seconds.heartbeat is not None
    assert milliseconds.heartbeat is not None
    assert abs(seconds.heartbeat - milliseconds.heartbeat) <= timedelta(milliseconds=1)
