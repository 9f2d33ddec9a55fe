"""What servers cost, by their price an hour in the fleet file.

A server costs as much when it has nothing to do, so the cost of tokens is that of the time in which
they were made, over their number.
"""

from collections.abc import Mapping

from fleet.endpoints import Endpoint

BACKEND, CANDIDATE = "backend", "candidate"

_HOUR = 3600.0


class Costs:
    """``prices`` are by name and kind; ``began`` is of the monotonic clock."""

    def __init__(self, endpoints: Mapping[str, Endpoint], began: float) -> None:
        self._began = began
        self.prices: dict[tuple[str, str], float] = {}
        for endpoint in endpoints.values():
            for kind, servers in (
                (BACKEND, endpoint.backends),
                (CANDIDATE, endpoint.candidates),
            ):
                for name, server in servers.items():
                    if server.price_per_hour is not None:
                        self.prices[name, kind] = server.price_per_hour

    def of(self, per_hour: float, now: float) -> float:
        """What a price has come to by now."""
        return per_hour * (now - self._began) / _HOUR
