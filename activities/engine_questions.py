"""What is asked before an engine is sent work: may it be asked, and for which model."""

from dataclasses import dataclass
from typing import Any

from activities.engine_pages import EnginePages
from fleet.engines.models import Models, choose, may_load, taken_for
from fleet.engines.place import EnginePlace
from fleet.engines.reading import Answer, Came, EngineReading
from fleet.engines.requests import Short, flags, short_request, tells_its_death


@dataclass(frozen=True)
class Question:
    path: str
    body: dict[str, Any]


class Questions:
    def __init__(self, pages: EnginePages) -> None:
        self._pages = pages

    def are_known(self, source: EnginePlace, engine: EngineReading) -> bool:
        """Whether there is anything to ask it."""
        return _short(source, engine) is not None

    async def prepare(self, source: EnginePlace, engine: EngineReading) -> Question | Answer:
        """The question, or why it is not to be asked: a request would hang, wake or load it."""
        likeness = taken_for(engine)
        for path, key in flags(likeness):
            said = await self._pages.json(source, path)
            if isinstance(said, dict) and said.get(key) is True:
                return Answer(came=Came.ASLEEP, detail=f"{path} says true")
        if tells_its_death(engine.profile) and (died := await self._pages.death(source)):
            return Answer(came=Came.DIED, detail=died[:200])
        short = _short(source, engine)
        if short is None:
            why = f"a request to {engine.profile} can't be guessed: set source.request"
            return Answer(came=Came.REFUSED, detail=why[:200])
        return await self._of_model(source, likeness, short)

    async def _of_model(self, source: EnginePlace, engine: str, short: Short) -> Question | Answer:
        named = short.body.get("model")
        wanted = named if isinstance(named, str) else source.model
        if not (short.names_model or wanted) and not may_load(engine):
            return Question(short.path, dict(short.body))
        if wanted is not None and not may_load(engine):
            return Question(short.path, {"model": wanted, **short.body})
        models = await self._pages.models(source, engine)
        model = choose(models, wanted, engine)
        if isinstance(model, Answer):
            is_needed = short.names_model or model.came is not Came.REFUSED
            return model if is_needed else Question(short.path, dict(short.body))
        body = {"model": model, **short.body} if short.names_model else dict(short.body)
        return Question(_unloading(short.path, models), _sized(body, models, model))


def _short(source: EnginePlace, engine: EngineReading) -> Short | None:
    if isinstance(source.request, str):
        return short_request(engine.profile, source.request)
    return Short(source.request.path, source.request.body, names_model=False)


def _unloading(path: str, models: Models | None) -> str:
    """Where a router says which models are loaded, it is told as well to load none for this."""
    if models is None or models.loaded is None or not path.startswith("/v1/"):
        return path
    return f"{path}?autoload=false"


def _sized(body: dict[str, Any], models: Models | None, model: str) -> dict[str, Any]:
    """With the context that it was loaded with: with another one Ollama would load it anew."""
    size = models.context.get(model) if models is not None else None
    if size is None or not isinstance(body.get("options"), dict):
        return body
    return {**body, "options": {**body["options"], "num_ctx": size}}
