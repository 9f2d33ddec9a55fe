"""Ports on loopback that nobody listens on."""

import socket


def free_port() -> int:
    """A port that is free now; whoever takes it should do so soon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
