"""Somebody, or the server itself, does something while an incident is open.

One fleet hangs at once; each server has a story of its own, told by its test.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fleet.contracts import Hold, Outcome, Phase
from tests.parts.rig import Facts, Plan, Rig, Server, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
    pytest.mark.timeout(180),
]

BY_HAND = {"stopped": "exited", "paused": "paused", "replaced": "running"}

#: The evidence is asked for last before the recheck; by then this server works again.
RECOVERS_AT_THE_LAST_MOMENT = """#!/bin/sh
if [ "$1" = logs ]; then
    for name; do :; done
    DOCKER kill --signal CONT "$name" >&2
    sleep 1
fi
exec DOCKER "$@"
"""


@pytest.fixture(scope="module")
async def hung(rig: Rig) -> AsyncIterator[dict[str, Server]]:
    late = rig.script("recovers", RECOVERS_AT_THE_LAST_MOMENT)
    patient = Plan({"persist_hung": "20s"})
    plans = {
        **dict.fromkeys([*BY_HAND, "gone", "recovered", "terminated"], patient),
        "cancelled": Plan({"mode": "approve"}),
        "too-late": Plan(stop="10s"),
        "last-moment": Plan(cli=(late,)),
    }
    async with rig.fleet(plans, sweep="3s") as servers:
        await asyncio.gather(*(server.freeze() for server in servers.values()))
        yield servers


async def test_cancel_after_the_command_was_sent_is_too_late_and_is_said_so(
    hung: dict[str, Server], rig: Rig
) -> None:
    server = hung["too-late"]
    await server.comes_to(Phase.RESTARTING)
    code, said = await rig.steady("cancel", server.name)
    assert (code, said.split(": ", 1)[1]) == (
        1,
        "too late, the command was sent; no further restart\n",
    )


async def test_cancel_while_a_person_must_approve_ends_it_untouched(
    hung: dict[str, Server], rig: Rig
) -> None:
    server = hung["cancelled"]
    await server.comes_to(Phase.APPROVING)
    code, said = await rig.steady("cancel", server.name, "--why", "a long job")
    assert (code, said) == (0, f"{server.name}: cancelled\n")
    status = await server.ends()
    assert status.outcome is Outcome.CANCELLED
    guard = await server.guard()
    assert guard.incident is not None
    assert (guard.takes, guard.incident.hold) == ([], Hold.CANCELLED)
    assert (await server.facts()).starts == 1


async def _by_hand(rig: Rig, server: Server, label: str) -> Facts:
    name = server.name
    if label == "paused":
        await rig.docker_do("pause", name)
    else:
        await rig.docker_do("kill", name)
    if label == "replaced":
        await rig.docker_do("rm", name)
        await asyncio.to_thread(rig.start_container, name, 3600)
    return await server.facts()


@pytest.mark.parametrize("label", BY_HAND)
async def test_what_somebody_stopped_paused_or_replaced_is_not_touched_and_pages(
    hung: dict[str, Server], rig: Rig, label: str
) -> None:
    server = hung[label]
    assert (await server.comes_to(Phase.PERSISTING)).restarts == 0
    left = await _by_hand(rig, server, label)
    status = await server.ends()
    assert status.outcome is Outcome.HANDED_OVER
    now = await server.facts()
    assert now == left
    assert now.status == BY_HAND[label]
    await _is_left_to_a_person(server)


async def test_what_somebody_removed_is_not_made_again_and_pages(
    hung: dict[str, Server], rig: Rig
) -> None:
    server = hung["gone"]
    await server.comes_to(Phase.PERSISTING)
    await rig.docker_do("rm", "--force", server.name)
    assert (await server.ends()).outcome is Outcome.HANDED_OVER
    assert server.name not in await rig.docker_do("ps", "--all", "--format", "{{.Names}}")
    await _is_left_to_a_person(server)


async def _is_left_to_a_person(server: Server) -> None:
    await server.is_told("handed_over")
    assert server.pages == ["handed_over"]
    guard = await server.guard()
    assert guard.incident is not None
    assert (guard.takes, guard.incident.hold) == ([], Hold.PERSON)


async def test_a_recovery_in_the_delay_ends_it_untouched(hung: dict[str, Server]) -> None:
    server = hung["recovered"]
    await server.comes_to(Phase.PERSISTING)
    await server.thaw()
    assert (await server.ends()).outcome is Outcome.RECOVERED
    await _is_untouched(server)


async def test_a_recovery_one_moment_before_the_command_stops_it(hung: dict[str, Server]) -> None:
    server = hung["last-moment"]
    status = await server.ends()
    assert status.outcome is Outcome.RECOVERED
    assert any(moment.text.startswith("evidence: /") for moment in status.timeline)
    await _is_untouched(server)


async def _is_untouched(server: Server) -> None:
    guard = await server.guard()
    assert (guard.takes, guard.incident) == ([], None)
    assert (await server.facts()).starts == 1
    await server.is_told("recovered")
    assert server.causes == ["confirmed", "recovered"]


async def test_a_workflow_terminated_by_hand_is_no_lock_and_the_incident_goes_on(
    hung: dict[str, Server],
) -> None:
    """Then the server hangs again, and that is an incident of its own."""
    server = hung["terminated"]
    opened = await server.comes_to(Phase.PERSISTING)
    await server.handle.terminate("by hand")

    async def has_begun_again() -> bool:
        return len(await server.runs()) == 2

    await until(has_begun_again, "the next sweep reports it again")
    status = await server.ends()
    assert (status.outcome, status.incident) == (Outcome.RESOLVED, opened.incident)
    assert (await server.facts()).starts == 2
    assert len((await server.guard()).takes) == 1

    await server.freeze()

    async def hangs_again() -> bool:
        return len(await server.runs()) == 3

    await until(hangs_again, "the next hang is found")
    again = await server.ends()
    assert again.outcome is Outcome.RESOLVED
    assert again.incident != opened.incident
    assert (await server.facts()).starts == 3
    assert len((await server.guard()).takes) == 2


async def test_a_restart_that_was_too_late_to_cancel_was_one_and_is_followed_to_its_end(
    hung: dict[str, Server],
) -> None:
    server = hung["too-late"]
    assert (await server.ends()).outcome is Outcome.RESOLVED
    assert (await server.facts()).starts == 2
    assert len((await server.guard()).takes) == 1
