"""Somebody, or the server itself, does something while an incident is open.

One fleet hangs at once; each server has a story of its own, told by its test.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

from fleet.contracts.guard import Hold
from fleet.contracts.remediation import Outcome, Phase
from fleet.foreign import FOREIGN
from tests.parts.rig import Rig
from tests.parts.watched import Facts, Plan, Server, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("openssh-server"),
    pytest.mark.needs("docker.io"),
    pytest.mark.timeout(180),
]

BY_HAND = {"stopped": "exited", "paused": "paused", "replaced": "running"}
MEDDLED_WITH = (*BY_HAND, "gone", "recovered", "terminated")

#: The evidence is asked for last before the recheck; by then this server works again.
RECOVERS_AT_THE_LAST_MOMENT = """#!/bin/sh
if [ "$1" = logs ]; then
    for name; do :; done
    DOCKER kill --signal CONT "$name" >&2
    sleep 1
fi
exec DOCKER "$@"
"""


@dataclass
class Hung:
    """The frozen servers; ``left`` is how somebody left the container of one."""

    servers: dict[str, Server]
    left: dict[str, Facts]


@pytest.fixture(scope="module")
async def hung(rig: Rig) -> AsyncIterator[Hung]:
    late = rig.script("recovers", RECOVERS_AT_THE_LAST_MOMENT)
    plans = {
        **dict.fromkeys(MEDDLED_WITH, Plan({"persist_hung": "40s"})),
        "cancelled": Plan({"mode": "approve"}),
        "too-late": Plan(stop="20s"),
        "last-moment": Plan(cli=(late,)),
    }
    async with rig.fleet(plans, sweep="3s") as servers:
        await asyncio.gather(*(server.freeze() for server in servers.values()))
        here = Hung(servers, {})
        await asyncio.gather(*(_meddle(here, label) for label in MEDDLED_WITH))
        yield here


async def _meddle(hung: Hung, label: str) -> None:
    """Do to a server in its delay what its label says."""
    server = hung.servers[label]
    rig, name = server.rig, server.name
    assert (await server.comes_to(Phase.PERSISTING)).restarts == 0
    if label == "recovered":
        await server.thaw()
    elif label == "terminated":
        await server.handle.terminate("by hand")
    elif label == "paused":
        await rig.docker_do("pause", name)
    else:
        await rig.docker_do("kill", name)
    if label in ("gone", "replaced"):
        await rig.docker_do("rm", name)
    if label == "replaced":
        await asyncio.to_thread(rig.start_container, name, 3600)
    if label in BY_HAND:
        hung.left[label] = await server.facts()


async def test_cancel_after_the_command_was_sent_is_too_late_and_is_said_so(
    hung: Hung, rig: Rig
) -> None:
    server = hung.servers["too-late"]
    await server.comes_to(Phase.RESTARTING)
    code, said = await rig.steady("cancel", server.name)
    assert (code, said.split(": ", 1)[1]) == (
        1,
        "too late, the command was sent; no further restart\n",
    )


async def test_cancel_while_a_person_must_approve_ends_it_untouched(hung: Hung, rig: Rig) -> None:
    server = hung.servers["cancelled"]
    await server.comes_to(Phase.APPROVING)
    code, said = await rig.steady("cancel", server.name, "--why", "a long job")
    assert (code, said) == (0, f"{server.name}: cancelled\n")
    status = await server.ends()
    assert status.outcome is Outcome.CANCELLED
    guard = await server.guard()
    assert guard.incident is not None
    assert (guard.takes, guard.incident.hold) == ([], Hold.CANCELLED)
    assert (await server.facts()).starts == 1


@pytest.mark.parametrize("label", BY_HAND)
async def test_what_somebody_stopped_paused_or_replaced_is_not_touched_and_pages(
    hung: Hung, label: str
) -> None:
    server = hung.servers[label]
    assert (await server.ends()).outcome is Outcome.HANDED_OVER
    now = await server.facts()
    left = hung.left[label]
    assert (now.identity, now.started) == (left.identity, left.started)
    assert now.status == BY_HAND[label]
    await _is_left_to_a_person(server, started_by=[FOREIGN] if label == "replaced" else [])


async def test_what_somebody_removed_is_not_made_again_and_pages(hung: Hung, rig: Rig) -> None:
    server = hung.servers["gone"]
    assert (await server.ends()).outcome is Outcome.HANDED_OVER
    assert server.name not in await rig.docker_do("ps", "--all", "--format", "{{.Names}}")
    await _is_left_to_a_person(server)


async def _is_left_to_a_person(server: Server, started_by: Sequence[str] = ()) -> None:
    await server.is_told("handed_over")
    assert server.pages == ["handed_over"]
    guard = await server.guard()
    assert guard.incident is not None
    assert [taken.by for taken in guard.takes] == list(started_by)
    assert guard.incident.hold is Hold.PERSON


async def test_a_recovery_in_the_delay_ends_it_untouched(hung: Hung) -> None:
    server = hung.servers["recovered"]
    assert (await server.ends()).outcome is Outcome.RECOVERED
    await _is_untouched(server)


async def test_a_recovery_one_moment_before_the_command_stops_it(hung: Hung) -> None:
    server = hung.servers["last-moment"]
    status = await server.ends()
    assert status.outcome is Outcome.RECOVERED
    assert any(moment.text.startswith("evidence: ") for moment in status.timeline)
    await _is_untouched(server)


async def _is_untouched(server: Server) -> None:
    guard = await server.guard()
    assert (guard.takes, guard.incident) == ([], None)
    assert (await server.facts()).starts == 1
    await server.is_told("recovered")
    assert server.causes == ["confirmed", "recovered"]


async def test_a_workflow_terminated_by_hand_is_no_lock_and_the_incident_goes_on(
    hung: Hung,
) -> None:
    """Then the server hangs again, and that is an incident of its own."""
    server = hung.servers["terminated"]

    async def has_begun_again() -> bool:
        return len(await server.runs()) == 2

    await until(has_begun_again, "the next sweep reports it again")
    status = await server.ends()
    assert status.outcome is Outcome.RESOLVED
    assert server.causes.count("confirmed") == 1
    assert (await server.facts()).starts == 2
    assert [taken.incident for taken in (await server.guard()).takes] == [status.incident]

    await server.freeze()

    async def hangs_again() -> bool:
        return len(await server.runs()) == 3

    await until(hangs_again, "the next hang is found")
    again = await server.ends()
    assert again.outcome is Outcome.RESOLVED
    assert again.incident != status.incident
    assert (await server.facts()).starts == 3
    assert len((await server.guard()).takes) == 2


async def test_a_restart_that_was_too_late_to_cancel_was_one_and_is_followed_to_its_end(
    hung: Hung,
) -> None:
    server = hung.servers["too-late"]
    assert (await server.ends()).outcome is Outcome.RESOLVED
    assert (await server.facts()).starts == 2
    assert len((await server.guard()).takes) == 1
