"""A hung server whose kernel reports a GPU off the bus. All parts are real but the kernel's log."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleet.contracts.guard import Hold
from fleet.contracts.remediation import Outcome
from tests.parts.rig import Rig
from tests.parts.watched import Plan, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
    pytest.mark.timeout(300),
]

KERNEL = """#!/bin/sh
date -u "+%Y-%m-%dT%H:%M:%S+00:00 NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
"""


async def test_it_pages_and_is_not_restarted_until_a_person_says_so(rig: Rig) -> None:
    log = rig.script("kernel-log", KERNEL)
    plan = Plan(host=rig.sshd.host(kernel_log=[log]))
    async with rig.fleet({"lost-gpu": plan}) as servers:
        server = servers["lost-gpu"]
        before = await server.facts()
        await server.freeze()
        status = await server.ends()
        assert status.outcome is Outcome.HANDED_OVER
        await server.is_told("handed_over")
        page = next(alert for alert in server.told if alert["cause"] == "handed_over")
        assert "Xid 79: GPU has fallen off the bus" in page["text"]
        assert "reboot the host" in page["text"]
        guard = await server.guard()
        assert guard.takes == []
        assert guard.incident is not None
        assert guard.incident.hold is Hold.PERSON
        assert await server.facts() == before
        await _evidence_ends(rig, guard.incident.id)
        code, said = await rig.steady("incident", "show", server.name)
        assert code == 0
        assert "(expired); Xid 79: GPU has fallen off the bus on GPU 0000:3b:00" in said
        code, said = await rig.steady("restart", server.name, "--why", "the GPU is back")
        assert code == 0, said
        status = await server.ends()
        assert status.outcome is Outcome.RESOLVED
        assert (await server.facts()).starts == before.starts + 1
        await server.replays()


async def _evidence_ends(rig: Rig, still_open: str) -> None:
    """What is too old goes when a worker starts, but not what an open incident needs."""
    shelf = rig.folder / "state" / "evidence"
    (bundle,) = (shelf / still_open).iterdir()
    old = f"{datetime.now(UTC) - timedelta(days=2):%Y%m%dT%H%M%S.%fZ}"
    needed = bundle.rename(bundle.with_name(old))
    closed = shelf / "nobody@20261001T000000.000Z" / old
    closed.mkdir(parents=True)
    (closed / "logs.txt").write_text("x")
    worker = await rig.start_worker(variables={"STEADY_EVIDENCE_KEEP": "24h"})

    async def is_gone() -> bool:
        return not closed.exists()

    await until(is_gone, "the end of evidence that nobody needs")
    assert (needed / "kernel.txt").exists()
    assert not Path(closed.parent).exists()
    worker.stop()
