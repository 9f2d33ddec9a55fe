"""Many streams at once, each read as it comes: how long a chunk took from the upstream to here.

Run as a program: port, path, model, streams, seconds. It says ``flowing`` once every stream has
begun (or a quarter of a minute has passed), and after those seconds what it saw in them, as JSON.
"""

import asyncio
import json
import re
import sys
import time
from array import array

import uvloop

from benchmarks.gateway.stream_upstream import RATE

_STAMP = re.compile(rb"T(\d{18})")
_BEGIN_WITHIN = 15.0
_AT_ONCE = 50
_HEAD = (
    b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


class _Seen:
    def __init__(self) -> None:
        self.flowing = self.failed = 0
        self.delays = array("q")
        self.counts = False


class _Stream(asyncio.Protocol):
    def __init__(self, seen: _Seen) -> None:
        self._seen = seen
        self._flows = False

    def data_received(self, data: bytes) -> None:
        now, seen = time.monotonic_ns(), self._seen
        stamps = _STAMP.findall(data)
        if not self._flows and stamps:
            self._flows = True
            seen.flowing += 1
        if seen.counts:
            seen.delays.extend([now - int(each) for each in stamps])

    def connection_lost(self, _: Exception | None) -> None:
        if self._flows:
            self._seen.flowing -= 1
        self._seen.failed += 1


async def _watch(port: int, path: str, model: str, streams: int, seconds: float) -> None:
    loop, seen = asyncio.get_running_loop(), _Seen()
    body = json.dumps(
        {
            "model": model,
            "stream": True,
            "max_tokens": int((_BEGIN_WITHIN + seconds) * RATE) * 2,
            "messages": [{"role": "user", "content": "a" * 200}],
        }
    ).encode()
    request = _HEAD % (path.encode(), len(body)) + body
    for number in range(streams):
        transport, _ = await loop.create_connection(lambda: _Stream(seen), "127.0.0.1", port)
        transport.write(request)
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0.01)
    end = loop.time() + _BEGIN_WITHIN
    while seen.flowing + seen.failed < streams and loop.time() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)
    print("flowing", flush=True)
    seen.counts = True
    await asyncio.sleep(seconds)
    seen.counts = False
    delays = sorted(seen.delays) or [0]
    result = {
        "chunks": len(seen.delays),
        "flowing": seen.flowing,
        "failed": seen.failed,
        "p50_ms": round(delays[len(delays) // 2] / 1e6, 3),
        "p99_ms": round(delays[len(delays) * 99 // 100] / 1e6, 3),
    }
    print(json.dumps(result), flush=True)
    sys.stdin.read()  # until its CPU and memory were looked at


if __name__ == "__main__":
    _, _port, _path, _model, _streams, _seconds = sys.argv
    uvloop.run(_watch(int(_port), _path, _model, int(_streams), float(_seconds)))
