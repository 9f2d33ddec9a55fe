"""Which models a server has loaded, since a request that names another one would load it.

Servers that load on demand: Ollama, llama.cpp's router, llama-swap, LM Studio.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.engines.reading import Answer, Came, EngineReading, Page

_MOST = 1000
_LONGEST = 300


@dataclass(frozen=True)
class Models:
    """The models that a server names. ``loaded`` is none where it doesn't tell which those are.

    ``context`` is the size of context with which one was loaded, by its name.
    """

    names: tuple[str, ...]
    loaded: tuple[str, ...] | None = None
    context: Mapping[str, int] = field(default_factory=dict)

    @property
    def none_is_loaded(self) -> bool:
        return self.loaded is not None and not self.loaded


def listed(said: Any) -> Models | None:
    """From ``/v1/models``; llama.cpp's router and LM Studio say there which are loaded."""
    rows = _rows(said, "data")
    if rows is None:
        return None
    states = {name: _state(row) for row in rows if (name := _text(row, "id"))}
    tells = any(states.values())
    loaded = tuple(name for name, state in states.items() if state == "loaded")
    return Models(tuple(states), loaded if tells else None)


def running(said: Any) -> Models | None:
    """From Ollama's ``/api/ps``, which lists what is loaded."""
    rows = _rows(said, "models")
    if rows is None:
        return None
    sizes = {name: row.get("context_length") for row in rows if (name := _text(row, "name"))}
    known = {name: size for name, size in sizes.items() if isinstance(size, int) and size > 0}
    return Models(tuple(sizes), tuple(sizes), known)


def swapped(said: Any) -> Models | None:
    """From llama-swap's ``/running``."""
    rows = _rows(said, "running")
    if rows is None:
        return None
    ready = tuple(_text(row, "model") for row in rows if row.get("state") == "ready")
    return Models(ready, ready)


#: Where each engine tells of its models, best first; of an unknown server each is tried.
_V1 = ("/v1/models", listed)
_PS = ("/api/ps", running)
Lists = Sequence[tuple[str, Callable[[Any], Models | None]]]
_LISTS: dict[str, Lists] = {
    "ollama": (_PS,),
    "openai": (_PS, ("/running", swapped), ("/api/v0/models", listed), _V1),
}
#: These may load a model when they are asked for one that isn't.
_LOAD = frozenset({"ollama", "openai", "llamacpp", "engine"})


def taken_for(engine: EngineReading) -> str:
    """What it is asked as: without counters nothing has shown that it is what its source says, so
    it may be any that loads models on demand.
    """
    is_shown = engine.page is Page.OK or engine.profile == "ollama"
    return engine.profile if is_shown else "openai"


def lists(engine: str) -> Lists:
    return _LISTS.get(engine, (_V1,))


def may_load(engine: str) -> bool:
    return engine in _LOAD


def choose(models: Models | None, wanted: str | None, engine: str) -> str | Answer:
    """The model that is asked for, or why none is. One that is not loaded is never asked for."""
    if models is None:
        if wanted is not None and engine != "ollama":
            return wanted
        path = lists(engine)[-1][0]
        remedy = "" if engine == "ollama" else ": set source.model"
        return Answer(came=Came.REFUSED, detail=f"{path} names no model{remedy}")
    if models.none_is_loaded:
        return Answer(came=Came.ASLEEP, detail="no model is loaded, and a request would load one")
    if models.loaded is None:
        return wanted or next(iter(models.names), None) or choose(None, None, engine)
    if wanted is None:
        return models.loaded[0]
    found = next((name for name in (wanted, f"{wanted}:latest") if name in models.loaded), None)
    why = f"{wanted} is not loaded, and a request would load it"
    return found or Answer(came=Came.ASLEEP, detail=why[:200])


def _rows(said: Any, key: str) -> Sequence[Mapping[str, Any]] | None:
    rows = said.get(key) if isinstance(said, dict) else None
    if not isinstance(rows, list):
        return None
    return [row for row in rows[:_MOST] if isinstance(row, dict)]


def _text(row: Mapping[str, Any], key: str) -> str:
    text = row.get(key)
    return text[:_LONGEST] if isinstance(text, str) else ""


def _state(row: Mapping[str, Any]) -> str:
    """``loaded`` and other words: a router's ``status``, or LM Studio's ``state``."""
    status = row.get("status")
    state = status.get("value") if isinstance(status, dict) else row.get("state")
    return state if isinstance(state, str) else ""
