"""Where a request goes: to the backend that has the fewest in flight for its weight.

A drained backend gets none, until its lease expires; one that is drained as a last resort gets some
where no other is left. One that could not be reached a moment ago is asked last: with nothing in
flight it would be chosen again and again.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from fleet.endpoints import BACKENDS, CANDIDATES, Endpoint
from gateway.heads import LONGEST_REMEMBERED, REMEMBERED
from gateway.limits import Limits
from gateway.pool import Address, Pool
from gateway.sweeper import Sweeper
from gateway.tally import Series

Role = str
PRODUCTION, DIRECT, MIRROR = "production", "direct", "mirror"


class Backend:
    """A server, and what this process has in flight there.

    It is drained until ``drained_until``, and no last resort either until ``closed_until``.
    """

    __slots__ = ("closed_until", "drained_until", "in_flight", "name", "pool", "resting_until")

    def __init__(self, name: str, pool: Pool) -> None:
        self.name = name
        self.pool = pool
        self.in_flight = 0
        self.resting_until = 0.0
        self.drained_until = self.closed_until = 0.0


class Route:
    """What a path leads to. ``prefix`` is cut off the target before it is passed on; ``series`` are
    the counts of each backend, once it has any.

    ``mirrored`` are the paths, without query, that may be mirrored; none on the routes to one
    server. ``asks_usage``: streams are asked for their usage, which clients don't see.
    """

    mirrored: frozenset[bytes] = frozenset()
    runs_dry = False
    asks_usage = False

    def __init__(
        self, endpoint: str, role: Role, prefix: bytes, backends: Iterable[Backend]
    ) -> None:
        self.endpoint = endpoint
        self.role = role
        self.prefix = prefix
        self.backends = tuple(backends)
        self.series: dict[Backend, Series] = {}
        self._turn = 0
        self.weights: dict[str, float] = {each.name: 1.0 for each in self.backends}
        self._uneven: dict[Backend, float] | None = None

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Let the backends have requests in flight in proportion to these, by name."""
        self.weights = {each.name: weights[each.name] for each in self.backends}
        uneven = len(set(self.weights.values())) > 1
        shares = {each: weights[each.name] for each in self.backends}
        self._uneven = shares if uneven else None

    def choose(self, now: float, but: Collection[Backend] = ()) -> Backend | None:
        """The least busy of those that may be asked; in turn where several are.

        The routes to one server lead there also while it is drained: a health check must.
        """
        if len(self.backends) == 1 and not but:
            only = self.backends[0]
            return only if self.role == DIRECT or only.closed_until <= now else None
        best: Backend | None = None
        best_rank: tuple[bool, bool, float] = (True, True, 0)
        weights = self._uneven
        count = len(self.backends)
        self._turn = (self._turn + 1) % count
        for number in range(count):
            each = self.backends[(self._turn + number) % count]
            if each in but or (each.closed_until > now and self.role != DIRECT):
                continue
            load = each.in_flight if weights is None else (each.in_flight + 1) / weights[each]
            rank = (each.drained_until > now, each.resting_until > now, load)
            if best is None or rank < best_rank:
                best, best_rank = each, rank
        return best


class Router:
    """Every route of a gateway, and its backends by the name of their server."""

    def __init__(self, endpoints: Mapping[str, Endpoint], limits: Limits, sweeper: Sweeper) -> None:
        self.backends: dict[str, Backend] = {}
        self._direct: dict[bytes, Route] = {}
        self._public: list[tuple[bytes, Route]] = []
        self._own: dict[str, Route] = {}
        self._limits, self._sweeper = limits, sweeper
        self._found = lru_cache(REMEMBERED)(self._find)

        for name, endpoint in endpoints.items():
            for server, spec in endpoint.backends.items():
                if server not in self.backends:
                    self.backends[server] = self._backend(server, spec.url)
                prefix = f"{BACKENDS}/{server}".encode()
                one = [self.backends[server]]
                self._direct.setdefault(prefix, Route(name, DIRECT, prefix, one))
            for candidate, kept in endpoint.candidates.items():
                self.add_candidate(name, candidate, kept.url)
            prefix = endpoint.path.rstrip("/").encode()
            behind = [self.backends[server] for server in endpoint.backends]
            route = Route(name, PRODUCTION, prefix, behind)
            route.mirrored = frozenset(prefix + path.encode() for path in endpoint.mirrored_paths)
            route.asks_usage = endpoint.ask_usage
            route.runs_dry = endpoint.client_gone == "run_dry"
            route.weigh({server: spec.weight for server, spec in endpoint.backends.items()})
            if endpoint.listen is None:
                self._public.append((prefix, route))
            else:
                self._own[name] = route
        self._public.sort(key=lambda each: len(each[0]), reverse=True)

    def _backend(self, name: str, url: str) -> Backend:
        return Backend(name, Pool(Address.of(url), self._limits, self._sweeper))

    def add_candidate(self, endpoint: str, candidate: str, url: str) -> None:
        """Give a candidate its own URL."""
        prefix = f"{CANDIDATES}/{candidate}".encode()
        # A pool of its own, so that these never wait for, or take from, what is mirrored.
        self._direct[prefix] = Route(endpoint, DIRECT, prefix, [self._backend(candidate, url)])
        self._found.cache_clear()

    def remove_candidate(self, candidate: str) -> None:
        """Take its URL away; what is under way there goes on."""
        route = self._direct.pop(f"{CANDIDATES}/{candidate}".encode(), None)
        self._found.cache_clear()
        for each in route.backends if route is not None else ():
            each.pool.close()

    def find(self, path: bytes) -> Route | None:
        """The route of a path: of a single server, else of the longest public path that fits."""
        return self._found(path) if len(path) <= LONGEST_REMEMBERED else self._find(path)

    def _find(self, path: bytes) -> Route | None:
        if path.startswith((b"/backends/", b"/candidates/")):
            return self._direct.get(b"/".join(path.split(b"/", 3)[:3]))
        for prefix, route in self._public:
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in (b"/", b""):
                return route
        return None

    def public(self, endpoint: str) -> Route:
        """The route of production.

        Raises:
            KeyError: there is no such endpoint.
        """
        for _, route in self._public:
            if route.endpoint == endpoint:
                return route
        return self._own[endpoint]

    def routes(self) -> list[Route]:
        public = (route for _, route in self._public)
        return [*public, *self._own.values(), *self._direct.values()]

    def drain(self, server: str, until: float, closed_until: float | None = None) -> None:
        """Send nothing more to a server until that moment of the monotonic clock. From
        ``closed_until`` on, where it is given, it gets what no other backend is left for.

        Raises:
            KeyError: there is no such backend.
        """
        backend = self.backends[server]
        backend.drained_until = until
        backend.closed_until = until if closed_until is None else closed_until

    def undrain(self, server: str) -> None:
        """Send to it again.

        Raises:
            KeyError: there is no such backend.
        """
        self.drain(server, 0.0)

    def close(self) -> None:
        for route in self.routes():
            for each in route.backends:
                each.pool.close()
