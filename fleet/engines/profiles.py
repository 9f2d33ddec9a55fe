"""Every engine that can be read, by the name that a source gives it."""

from fleet.engines.profile import Profile
from fleet.engines.vllm import VLLM

PROFILES: dict[str, Profile] = {VLLM.name: VLLM}
