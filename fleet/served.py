"""What a gateway serves as a whole: at which addresses, and what is wrong between its endpoints."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fleet.addresses import UNIX, host_and_port
from fleet.endpoints import Endpoint, Gateway
from fleet.refusal import Refusal

#: At every address of a machine.
_ANYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - nothing is bound here

#: Places to read a server that don't say what it runs.
_ANY_ENGINE = frozenset({"redis", "status", "engine", "openai"})


class Door(NamedTuple):
    """One address for clients, by its key in the fleet file; ``endpoint`` where it is its own."""

    key: tuple[str, ...]
    address: str
    endpoint: str | None = None

    @property
    def place(self) -> tuple[str, int]:
        return host_and_port(self.address)


def doors(gateway: Gateway, endpoints: Mapping[str, Endpoint]) -> list[Door]:
    """All addresses at which a gateway serves clients."""
    own = [
        Door(("endpoints", name, "listen"), endpoint.listen, name)
        for name, endpoint in endpoints.items()
        if endpoint.listen is not None
    ]
    return [Door(("gateway", "listen"), gateway.listen), *own]


def with_providers(
    endpoints: Mapping[str, Endpoint], kinds: Mapping[str, str]
) -> dict[str, Endpoint]:
    """Endpoints whose backends say what they run, where the ``kinds`` of places at which steady
    reads its servers say it.
    """
    found = {}
    for name, endpoint in endpoints.items():
        backends = {
            server: spec.model_copy(update={"provider": kinds[server]})
            if spec.provider is None and kinds.get(server, "engine") not in _ANY_ENGINE
            else spec
            for server, spec in endpoint.backends.items()
        }
        found[name] = endpoint.model_copy(update={"backends": backends})
    return found


def contradictions(
    gateway: Gateway, endpoints: Mapping[str, Endpoint], servers: set[str]
) -> Iterator[Refusal]:
    """What is wrong between endpoints that are each good; ``servers`` are those of the fleet."""
    yield from _shared_files(endpoints)
    yield from _shared_ports(gateway, endpoints)
    paths: dict[str, str] = {}
    urls: dict[str, tuple[str, str]] = {}
    prices: dict[str, tuple[str, float | None]] = {}
    candidates: dict[str, str] = {}
    for name, endpoint in endpoints.items():
        if endpoint.listen is not None and endpoint.path != "/":
            message = "at an address of its own an endpoint has every path"
            yield Refusal(("endpoints", name, "path"), message, "leave out path, or listen")
        first = paths.setdefault(endpoint.path, name) if endpoint.listen is None else name
        if first != name:
            message = f"{endpoint.path} is the path of endpoints.{first} already"
            remedy = "choose another path, or an address of its own: listen"
            yield Refusal(("endpoints", name, "path"), message, remedy)
        for server, backend in endpoint.backends.items():
            at = ("endpoints", name, "backends", server)
            if server not in servers:
                remedy = f"add [servers.{server}], or name a server of the fleet"
                yield Refusal(at, f"there is no [servers.{server}]", remedy)
            other, url = urls.setdefault(server, (name, backend.url))
            if url != backend.url:
                message = f"is another URL than in endpoints.{other}, for one server"
                yield Refusal((*at, "url"), message, "write the same in both")
            other, price = prices.setdefault(server, (name, backend.price_per_hour))
            if price != backend.price_per_hour:
                message = f"is another price than in endpoints.{other}, for one server"
                yield Refusal((*at, "price_per_hour"), message, "write the same in both")
        for candidate in endpoint.candidates:
            other = candidates.setdefault(candidate, name)
            if other != name:
                message = f"is the name of a candidate of endpoints.{other} already"
                remedy = "choose another name: it has a URL of its own"
                yield Refusal(("endpoints", name, "candidates", candidate), message, remedy)


def _shared_ports(gateway: Gateway, endpoints: Mapping[str, Endpoint]) -> Iterator[Refusal]:
    taken = [] if gateway.admin.startswith(UNIX) else [Door(("gateway", "admin"), gateway.admin)]
    for door in doors(gateway, endpoints):
        other = next((each for each in taken if door.endpoint and _meet(each, door)), None)
        if other is not None:
            message = f"{door.address} is taken by {'.'.join(other.key)} = {other.address} already"
            yield Refusal(door.key, message, "choose another port")
        taken.append(door)


def _meet(one: Door, other: Door) -> bool:
    (host, port), (its_host, its_port) = one.place, other.place
    return port == its_port != 0 and (
        host == its_host or not _ANYWHERE.isdisjoint((host, its_host))
    )


def _shared_files(endpoints: Mapping[str, Endpoint]) -> Iterator[Refusal]:
    files: dict[str, str] = {}
    for name, endpoint in endpoints.items():
        if endpoint.paired_samples is not None:
            other = files.setdefault(endpoint.paired_samples.file, name)
            if other != name:
                at = ("endpoints", name, "paired_samples", "file")
                yield Refusal(at, f"is the file of endpoints.{other} already", "choose another")
