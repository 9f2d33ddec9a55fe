"""From the record that a worker publishes to a ``Reading``. What can't be understood says why.

A record is a mapping: a hash's fields as text, or parsed JSON, where a dotted name reaches into
nested objects. Only the state and the heartbeat must be there.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime

from fleet.config import RecordFields, RedisSource, StateWords, StatusSource
from fleet.readings import Reading, WorkState, unreadable
from fleet.timestamps import read_time

_WORD = 40
_JOB = 80
_OPAQUE = 64


class RecordError(ValueError):
    """A record that can't be understood, in one line that names the field and the remedy."""


def from_json(
    server: str, raw: str | bytes, source: RedisSource | StatusSource, at: datetime
) -> Reading:
    """Read a record published as a JSON object."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return unreadable(server, at, "the record is no JSON: publish one JSON object")
    if not isinstance(record, dict):
        return unreadable(server, at, "the record is JSON, but no object: publish one JSON object")
    return from_record(server, record, source, at)


def from_record(
    server: str, record: Mapping[str, object], source: RedisSource | StatusSource, at: datetime
) -> Reading:
    """Read a record; ``at`` is when it arrived, by the observer's clock."""
    fields = source.fields
    try:
        word = _state_word(record, fields)
        heartbeat = _heartbeat(record, source)
    except RecordError as problem:
        return unreadable(server, at, str(problem))
    return Reading(
        server=server,
        at=at,
        state=meaning(word, source.words),
        word=_cut(word, _WORD),
        heartbeat=heartbeat,
        progress=_opaque(record, fields.progress),
        job=_shown(record, fields.job),
        process=_opaque(record, fields.process),
    )


def meaning(word: str, words: StateWords) -> WorkState:
    """What a worker's word for its state means; an unknown one is ``OTHER``, never an error."""
    folded = word.strip().casefold()
    for state in (WorkState.PROCESSING, WorkState.IDLE, WorkState.ERROR, WorkState.LOADING):
        known: tuple[str, ...] = getattr(words, state.value)
        if folded in (each.strip().casefold() for each in known):
            return state
    return WorkState.OTHER


def names_read(fields: RecordFields) -> list[str]:
    """The fields that a reading is made of, for a store that can be asked for just these."""
    named = (fields.state, fields.heartbeat, fields.progress, fields.job, fields.process)
    return list(dict.fromkeys(name for name in named if name))


def _state_word(record: Mapping[str, object], fields: RecordFields) -> str:
    value = _look_up(record, fields.state)
    if value is None:
        raise RecordError(_absent("state", fields.state))
    if isinstance(value, bool | list | dict):
        raise RecordError(f"the field {fields.state!r} is no word: publish the state as text")
    word = _printable(str(value)).strip()
    if not word:
        raise RecordError(f"the field {fields.state!r} is empty: publish the state as text")
    return word


def _heartbeat(record: Mapping[str, object], source: RedisSource | StatusSource) -> datetime:
    name = source.fields.heartbeat
    value = _look_up(record, name)
    if value is None:
        raise RecordError(_absent("heartbeat", name))
    try:
        return read_time(value, source.time)
    except ValueError as problem:
        raise RecordError(f"the field {name!r} {problem}") from None


def _absent(what: str, name: str) -> str:
    return f"the record has no field {name!r}: publish it, or name yours as source.fields.{what}"


def _look_up(record: Mapping[str, object], name: str) -> object:
    """A field that really has the dotted name goes before the path that it spells."""
    if name in record:
        return record[name]
    value: object = record
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _text(record: Mapping[str, object], name: str | None) -> str | None:
    value = _look_up(record, name) if name else None
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return _printable(text).strip() or None


def _opaque(record: Mapping[str, object], name: str | None) -> str | None:
    """A value that is only ever compared: of a long one, a hash, as the tail alone may differ."""
    text = _text(record, name)
    if text is None or len(text) <= _OPAQUE:
        return text
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def _shown(record: Mapping[str, object], name: str | None) -> str | None:
    text = _text(record, name)
    return _cut(text, _JOB) if text is not None else None


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _printable(text: str) -> str:
    """Control characters would reach terminals, and lone surrogates can't be sent at all."""
    return "".join(c if c.isprintable() else " " for c in text)
