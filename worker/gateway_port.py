"""The port that several processes of a gateway share (``SO_REUSEPORT``)."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """Hold a port for the length of the block, so that processes of this user can listen at it, and
    nobody else. Gives the port, which is a free one for 0.

    Raises:
        OSError: it can't be listened on.
    """
    with ExitStack() as held:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, (where, _, *more) in dict.fromkeys(found):
            # Without the option first: with it, another gateway of this user would be no obstacle.
            with _bound(family, (where, port, *more), shared=False):
                pass
            one = held.enter_context(_bound(family, (where, port, *more), shared=True))
            port = one.getsockname()[1]
        yield port


def _bound(family: int, address: tuple[object, ...], *, shared: bool) -> socket.socket:
    """It does not listen, so no connection comes to it."""
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
    except OSError:
        one.close()
        raise
    return one
