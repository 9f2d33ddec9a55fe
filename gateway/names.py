"""Names of servers are looked up in threads of their own.

An event loop has few threads for that, and a name that no server answers for keeps one busy for
long: production's backends would wait for the name of a candidate.
"""

import asyncio
import ipaddress
import socket
import threading
from contextlib import suppress


class Name:
    """The addresses of one host, asked for once however many wait for them."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._is_address = _is_address(host)
        self._asked: asyncio.Future[list[str]] | None = None

    async def addresses(self) -> list[str]:
        """They are asked for anew each time, unless that is under way already.

        Raises:
            OSError: there are none.
        """
        if self._is_address:
            return [self._host]
        if self._asked is None:
            asked = asyncio.get_running_loop().create_future()
            # A daemon: a process that ends does not wait for a server that does not answer.
            thread = threading.Thread(target=self._ask, args=(asked,), daemon=True)
            try:
                thread.start()
            except RuntimeError as problem:
                raise OSError(str(problem)) from None
            self._asked = asked
        return await asyncio.shield(self._asked)

    def _ask(self, asked: "asyncio.Future[list[str]]") -> None:
        found: list[str] | OSError
        try:
            rows = socket.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(row[4][0]) for row in rows))
        except (OSError, UnicodeError) as problem:
            found = OSError(str(problem))
        with suppress(RuntimeError):  # the loop is closed
            asked.get_loop().call_soon_threadsafe(self._answered, asked, found)

    def _answered(self, asked: "asyncio.Future[list[str]]", found: list[str] | OSError) -> None:
        self._asked = None
        if isinstance(found, OSError):
            asked.set_exception(found)
            asked.exception()  # whoever asked may have gone
        else:
            asked.set_result(found)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
