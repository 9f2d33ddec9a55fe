"""How many connections a gateway may hold: as many as its machine lets it."""

import resource

import structlog

from fleet.config import Fleet

_log = structlog.get_logger(__name__)

#: What is open beside connections: files, listeners, idle connections to the servers.
_OTHERS = 512


def raise_open_files(fleet: Fleet) -> None:
    """A shell's or service's 1024 is less than its clients, and their requests, need.

    Mirrors would take what production is to have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    needed = _needed(fleet)
    if hard != resource.RLIM_INFINITY and hard < needed:
        _log.warning(
            "open files are limited to less than connections may need: raise the limit of this"
            " service (LimitNOFILE, ulimit -n), or lower gateway.max_clients",
            limit=hard,
            needed=needed,
        )


def _needed(fleet: Fleet) -> int:
    mirrors = sum(
        candidate.max_in_flight
        for endpoint in fleet.endpoints.values()
        for candidate in endpoint.candidates.values()
    )
    return 2 * fleet.gateway.max_clients + mirrors + _OTHERS
