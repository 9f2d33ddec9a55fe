"""HTTP as the simulated servers speak it: one request a connection, and no more than is needed."""

import argparse
import asyncio
import json
import sys
from dataclasses import fields
from typing import Any

_LARGEST_BODY = 4_000_000

#: How the line of the log begins that a request for work leaves; the log outlives a restart.
ASKED = "asked for"


async def receive(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], bytes]:
    """Method, target, headers by lower-case names, and body.

    Raises:
        ValueError: it is no request, or one that is too large.
    """
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", "0"))
    if length > _LARGEST_BODY:
        raise ValueError
    return method, target, headers, await reader.readexactly(length)


def answer(status: int, body: bytes, kind: str) -> bytes:
    head = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def as_json(status: int, said: Any) -> tuple[int, bytes, str]:
    return status, json.dumps(said).encode(), "application/json"


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def options_of(model: type[Any], program: str, about: str | None) -> dict[str, Any]:
    """The command line's options, one for each field of ``model``."""
    parser = argparse.ArgumentParser(prog=program, description=about)
    for each in fields(model):
        if each.type is bool:
            parser.add_argument(f"--{each.name}", action="store_true")
        else:
            is_needed = each.name in ("name", "port")
            parser.add_argument(
                f"--{each.name}",
                type=each.type,
                required=is_needed,
                default=None if is_needed else each.default,
            )
    return vars(parser.parse_args())
