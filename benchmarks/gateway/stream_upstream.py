"""An engine that only streams: 20 events a second to each client, each with its time in it.

Run as a program, with a port. ``max_tokens`` of a request is how many events it gets. The streams
are spread over the time between two events.
"""

import asyncio
import json
import re
import sys
import time
from typing import cast

import uvloop

#: Events a second of each stream.
RATE = 20
_TICK = 0.005
_SLOTS = round(1 / RATE / _TICK)

_COUNT = re.compile(rb'"max_tokens": ?(\d+)')
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: ?(\d+)\r\n")
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _event(choices: str, usage: str = "") -> bytes:
    said = (
        '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764531428,"model":"m",'
        f'"choices":{choices}{usage}}}'
    )
    return f"data: {said}\n\n".encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_BEFORE, _AFTER = _chunk(
    _event('[{"index":0,"delta":{"content":"T@@@@@@@@@@@@@@@@@@"},"finish_reason":null}]')
).split(b"@" * 18)
_USAGE = json.dumps({"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110})
_END = (
    _chunk(_event('[{"index":0,"delta":{},"finish_reason":"stop"}]'))
    + _chunk(_event("[]", f',"usage":{_USAGE}'))
    + _chunk(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


class _Stream(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, slots: list[set["_Stream"]]) -> None:
        self._slots = slots
        self._slot: set[_Stream] | None = None
        self._held = b""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, end, body = self._held.partition(b"\r\n\r\n")
        length, count = _LENGTH.search(head + b"\r\n"), _COUNT.search(body)
        if not end or length is None or len(body) < int(length[1]):
            return
        self._held = b""
        self._left = int(count[1]) if count is not None else 100
        self.transport.write(_HEAD)
        self._slot = min(self._slots, key=len)
        self._slot.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        if self._slot is not None:
            self._slot.discard(self)

    def next(self) -> None:
        if self._left:
            self._left -= 1
            self.transport.write(b"%b%018d%b" % (_BEFORE, time.monotonic_ns(), _AFTER))
        else:
            self.transport.write(_END)
            self.connection_lost(None)


async def _serve(port: int) -> None:
    slots: list[set[_Stream]] = [set() for _ in range(_SLOTS)]
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: _Stream(slots), "127.0.0.1", port, backlog=2048)
    at, number = loop.time(), 0
    while True:
        for each in tuple(slots[number]):
            each.next()
        number = (number + 1) % _SLOTS
        at = max(at + _TICK, loop.time() - 1 / RATE)
        await asyncio.sleep(at - loop.time())


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
