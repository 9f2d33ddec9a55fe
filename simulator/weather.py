"""Faults that come and go for as long as the host stands: what a watcher has to live with."""

import asyncio
from dataclasses import dataclass

from simulator.engine import Engine


@dataclass(frozen=True)
class Weather:
    """Names of containers: one freezes, one recovers by itself, one is broken until it is mended.
    ``engines`` are model servers, which freeze one after the other.

    ``calm`` is the pause between two faults in seconds, ``blip`` how long the one that recovers
    hangs, ``mended_after`` how long it takes somebody to mend the broken one.
    """

    freezes: str
    recovers: str
    broken: str
    engines: tuple[str, ...] = ()
    calm: float = 45.0
    blip: float = 8.0
    mended_after: float = 150.0

    async def blow(self, engine: Engine) -> None:
        """Go round for ever. It begins with a pause, in which what was left over shows."""
        while True:
            await asyncio.sleep(self.calm)
            engine.freeze(self.freezes)
            await asyncio.sleep(self.calm)
            await self._blip(engine)
            for name in self.engines:
                await asyncio.sleep(self.calm)
                engine.freeze(name)
            await asyncio.sleep(self.calm)
            await self._break(engine)

    async def _blip(self, engine: Engine) -> None:
        engine.freeze(self.recovers)
        await asyncio.sleep(self.blip)
        engine.thaw(self.recovers)

    async def _break(self, engine: Engine) -> None:
        engine.cure_fails(self.broken)
        engine.freeze(self.broken)
        await asyncio.sleep(self.mended_after)
        engine.cure_fails(self.broken, fails=False)
        await engine.restart(self.broken, stop_timeout=1)
