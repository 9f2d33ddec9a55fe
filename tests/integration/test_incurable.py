"""A hung server whose kernel reports a GPU off the bus. All parts are real but the kernel's log."""

import pytest

from fleet.contracts.guard import Hold
from fleet.contracts.remediation import Outcome
from tests.parts.rig import Rig
from tests.parts.watched import Plan

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
    pytest.mark.timeout(180),
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
        code, said = await rig.steady("incident", "show", server.name)
        assert code == 0
        assert "Xid 79: GPU has fallen off the bus on GPU 0000:3b:00" in said
        code, said = await rig.steady("restart", server.name, "--why", "the GPU is back")
        assert code == 0, said
        status = await server.ends()
        assert status.outcome is Outcome.RESOLVED
        assert (await server.facts()).starts == before.starts + 1
        await server.replays()
