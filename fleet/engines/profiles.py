"""Every engine that can be read, by the name that a source gives it, and how a page tells which."""

from fleet.engines.dynamo import DYNAMO, DYNAMO_MARKS
from fleet.engines.llamacpp import LLAMACPP
from fleet.engines.lmdeploy import LMDEPLOY
from fleet.engines.nim import NIM
from fleet.engines.profile import Profile
from fleet.engines.sglang import SGLANG
from fleet.engines.tgi import TGI
from fleet.engines.triton import TRITON
from fleet.engines.trtllm import TRTLLM
from fleet.engines.vllm import VLLM

#: In the order in which a page is tried; the names of NIM 1.x, without a prefix, come last.
_KNOWN = (VLLM, SGLANG, LMDEPLOY, TRTLLM, LLAMACPP, TGI, TRITON, *NIM.among[1:])

ENGINE = Profile(name="engine", among=_KNOWN, start_header=LLAMACPP.start_header)
OLLAMA = Profile(name="ollama", metrics=False)
OPENAI = Profile(name="openai", metrics=False)

PROFILES: dict[str, Profile] = {
    each.name: each
    for each in (
        *(VLLM, SGLANG, LLAMACPP, TGI, TRITON, TRTLLM, NIM, LMDEPLOY, DYNAMO),
        *(OLLAMA, OPENAI, ENGINE),
    )
}

_BY_NAME = {each.name: each for each in (*PROFILES.values(), *NIM.among, *DYNAMO.among)}


def profile_named(name: str) -> Profile:
    """The profile that a reading was made by; one that nothing is known of has nothing."""
    return _BY_NAME.get(name) or Profile(name=name)


def recognise(page: bytes, among: tuple[Profile, ...] = ()) -> Profile | None:
    """The engine whose page this is, where one is known that writes such a page."""
    if not among or among == _KNOWN:
        among = DYNAMO.among if _has(page, DYNAMO_MARKS) else _KNOWN
    return next((each for each in among if _has(page, each.marks)), None)


def _has(page: bytes, marks: tuple[str, ...]) -> bool:
    """Whether a line begins so."""
    begins = [mark.encode() for mark in marks]
    return page.startswith(tuple(begins)) or any(b"\n" + each in page for each in begins)
