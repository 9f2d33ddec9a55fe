"""Whether the URLs of alert services can be used, as far as this machine knows. None is shown."""

from collections.abc import Iterator, Mapping

from activities.secrets import SecretError, resolve
from activities.services import recipients
from fleet.config import Fleet, SecretRef
from fleet.refusal import Refusal
from worker.disk import services

_KINDS = "https://github.com/caronc/apprise/wiki"


def doubtful_services(
    fleet: Fleet, environment: Mapping[str, str], *, files_are_here: bool
) -> Iterator[Refusal]:
    """Service URLs that would not work, or not as meant; what can't be read here is no doubt."""
    for at, ref in services(fleet):
        url = _read(ref, environment, files_are_here=files_are_here)
        if url is None:
            continue
        reached = recipients(url)
        if reached is None:
            message = "the URL is none that apprise can make sense of"
            yield Refusal(at, message, f"write it as {_KINDS} says for the service")
        elif reached > 1:
            message = f"the URL has {reached} recipients, and if one fails all are told again"
            yield Refusal(at, message, "give each recipient a URL of its own")


def _read(ref: SecretRef, environment: Mapping[str, str], *, files_are_here: bool) -> str | None:
    if ref.env is not None:
        return environment.get(ref.env) or None
    try:
        return resolve(ref) if files_are_here else None
    except SecretError:
        return None
