"""Short requests as data: what each engine is asked, of the kind that its model serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

RequestKind = Literal["completion", "chat", "embedding", "rerank"]

_TEXT = "Hi"
_TALK = [{"role": "user", "content": _TEXT}]


@dataclass(frozen=True)
class Short:
    """One short request. ``names_model``: its body has to say which model is meant."""

    path: str
    body: Mapping[str, Any]
    names_model: bool = True


_OPENAI: dict[RequestKind, Short] = {
    "completion": Short("/v1/completions", {"prompt": _TEXT, "max_tokens": 1}),
    "chat": Short("/v1/chat/completions", {"messages": _TALK, "max_tokens": 1}),
    "embedding": Short("/v1/embeddings", {"input": _TEXT}),
    "rerank": Short("/v1/rerank", {"query": _TEXT, "documents": [_TEXT]}),
}

#: Without ``keep_alive``, so that how long a model stays loaded is left as it is.
_ONE_TOKEN = {"stream": False, "options": {"num_predict": 1}}

#: Where an engine's own requests differ. Triton's depend on its models' inputs: none is guessed.
_OWN: dict[str, dict[RequestKind, Short]] = {
    "tgi": {
        **_OPENAI,
        "completion": Short(
            "/generate", {"inputs": _TEXT, "parameters": {"max_new_tokens": 1}}, names_model=False
        ),
    },
    "ollama": {
        "completion": Short("/api/generate", {"prompt": _TEXT, **_ONE_TOKEN}),
        "chat": Short("/api/chat", {"messages": _TALK, **_ONE_TOKEN}),
        "embedding": Short("/api/embed", {"input": _TEXT}),
    },
    "triton": {},
}


def short_request(engine: str, kind: RequestKind) -> Short | None:
    """What an engine is asked, by the name of its profile; none where that can't be known."""
    return _OWN.get(engine.partition("/")[0], _OPENAI).get(kind)


#: Pages that say that somebody paused it or put it to sleep: a request would hang, crash or wake
#: it.
#: Those of vLLM are there in its development mode only, which alone can do either.
_PAUSES = (("/is_paused", "is_paused"), ("/is_sleeping", "is_sleeping"))
_SLEEPS = (("/props", "is_sleeping"),)
_FLAGS = {
    **dict.fromkeys(("ollama", "tgi", "triton", "trtllm"), ()),
    "llamacpp": _SLEEPS,
    "openai": (*_PAUSES, *_SLEEPS),
}


def flags(engine: str) -> tuple[tuple[str, str], ...]:
    """Pages and keys; where one is true, nobody is to ask."""
    return _FLAGS.get(engine.partition("/")[0], _PAUSES)


#: Engines whose ``/health`` tells one thing only, that the engine behind it died: by 503, and up to
#: 0.10 by 500. That it says 200 means nothing. SGLang's generates a token, and LiteLLM's asks every
#: model that it knows, so of an unknown server it is never asked.
_OWN_DEATH = frozenset({"vllm"})


def tells_its_death(engine: str) -> bool:
    return engine in _OWN_DEATH
