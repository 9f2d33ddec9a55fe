"""Looks, over SSH, at what runs on a host that may become part of a fleet. It changes nothing."""

import asyncio
from dataclasses import replace

from activities.neighbours import running_on
from activities.ssh import Limits, LostTrackError, Shell, connected
from activities.ssh_trust import NotSentError, is_known, read_trust, refuse_key
from fleet.actions import Host
from fleet.discovery import MOST, Found, Question, absent, once, questions
from fleet.draft import Looked
from fleet.host_replies import ReplyError
from fleet.neighbours import hindrance

_SECONDS = 10
#: A host with a thousand containers prints less.
_LIMITS = Limits(seconds=_SECONDS + 4, keep=2 * 1024 * 1024, flood=2 * 1024 * 1024)


async def look(host: Host, *, sudo: bool = False) -> Looked:
    """What looks like inference there; a host that can't be asked is told, never raised.

    ``sudo`` asks the container engines as root, by a rule that needs no password.
    """
    found: list[Found] = []
    remarks: list[str] = []
    try:
        # A host that is known by its IP address only would connect, and the file be refused.
        trust = await asyncio.to_thread(read_trust, host)
        if not is_known(host, trust):
            refuse_key(host, trust)
        async with connected(host) as shell:
            for question in questions(sudo=sudo):
                asked = await _ask(shell, question, remarks)
                found += await _with_harm(shell, asked, remarks, sudo=sudo)
    except NotSentError as problem:
        return Looked(host, problem=str(problem))
    each = once(found)
    if len(each) > MOST:
        remarks.append(f"only the first {MOST} of {len(each)} are written down")
    return Looked(host, tuple(each[:MOST]), tuple(remarks))


async def _ask(shell: Shell, question: Question, remarks: list[str]) -> list[Found]:
    # sshd passes no signal on where it runs as the user itself, as it does for root.
    bounded = ("timeout", "-k", "2", str(_SECONDS), *question.argv)
    try:
        completed = await shell.run(bounded, _LIMITS)
        if absent(completed.reply):
            return []
        if completed.cut:
            remarks.append(f"{question.who} printed far too much, and was not understood")
            return []
        return question.read(completed.reply)
    except (ReplyError, LostTrackError) as problem:
        if not question.optional:
            remarks.append(f"{question.who} could not be asked: {problem}")
        return []


async def _with_harm(
    shell: Shell, found: list[Found], remarks: list[str], *, sudo: bool
) -> list[Found]:
    """What was found, with the harm that a restart would do; nothing where that can't be asked."""
    containers = [each for each in found[:MOST] if each.kind != "systemd"]
    if not containers:
        return found
    root = ("sudo", "-n") if sudo else ()
    try:
        running = await running_on(shell, (*root, containers[0].kind))
    except ReplyError as problem:
        remarks.append(f"what a restart would harm could not be asked: {problem}")
        return found
    own = {each.id: each for each in running}
    return [
        replace(each, hindrance=hindrance([own[each.id]], running)) if each.id in own else each
        for each in found
    ]
