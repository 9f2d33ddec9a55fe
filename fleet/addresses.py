"""Addresses to listen on, as people write them."""

import re

#: Before the path of a socket.
UNIX = "unix://"
#: The longest path that a Unix socket can have, in bytes.
LONGEST_SOCKET = 107


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of ``HOST:PORT`` or ``[IPV6]:PORT``.

    Raises:
        ValueError: it is no such thing.
    """
    host, _, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    doubtful = (":" in bare and bare == host) or re.search(r"[\s/]", bare)
    if not bare or doubtful or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is no HOST:PORT, like 127.0.0.1:9464")
    return bare, int(port)


def unix_path(address: str) -> str | None:
    """The path of ``unix:///PATH``; none for an address of another kind."""
    return address.removeprefix(UNIX) if address.startswith(UNIX) else None
