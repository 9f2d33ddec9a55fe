"""The least that a proxy of Starlette and httpx is: what most gateways in Python are made of.

It runs in an environment of its own (``peers.starlette``), which has both.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

_CLIENT = httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None))
_OWN = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})


async def passed_on(request: Request) -> StreamingResponse:
    path = request.url.path
    port = os.environ["UP"]
    if path.startswith("/streams/"):
        path, port = path.removeprefix("/streams"), os.environ["STREAMS"]
    asked = _CLIENT.build_request(
        request.method,
        f"http://127.0.0.1:{port}{path}",
        headers={key: value for key, value in request.headers.items() if key not in _OWN},
        content=await request.body(),
    )
    answer = await _CLIENT.send(asked, stream=True)
    headers = {key: value for key, value in answer.headers.items() if key not in _OWN}
    return StreamingResponse(
        answer.aiter_raw(), answer.status_code, headers, background=BackgroundTask(answer.aclose)
    )


@asynccontextmanager
async def _closing(_: Starlette) -> AsyncIterator[None]:
    yield
    await _CLIENT.aclose()


app = Starlette(routes=[Route("/{path:path}", passed_on, methods=["POST"])], lifespan=_closing)
