"""``steady check`` as a real process."""

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any

STEADY = [sys.executable, "-c", "from worker.entry import main; main()"]
_WITHIN = 60


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.out)
        return said

    @property
    def verdict(self) -> str:
        return self.out.partition(":")[0]


async def check(*arguments: str, env: dict[str, str] | None = None) -> Ended:
    process = await asyncio.create_subprocess_exec(
        *STEADY,
        "check",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    try:
        async with asyncio.timeout(_WITHIN):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    return Ended(process.returncode or 0, out.decode(), err.decode())
