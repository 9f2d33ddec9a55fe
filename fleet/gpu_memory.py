"""Memory of GPUs that a process held: what is configured, what a host says, and what is still held.

A new process that starts while the old one's memory is still held fails, or hangs in the start.
"""

import re
from collections.abc import Collection, Sequence
from typing import Annotated

from pydantic import BaseModel, Field, field_validator

from fleet.arguments import Arguments
from fleet.contracts.host import GpuHolder, HostErrorType
from fleet.duration_fields import Duration
from fleet.duration_fields import within as ranging
from fleet.durations import parse
from fleet.host_replies import Reply, ReplyError, succeeded
from fleet.policy import STRICT
from fleet.refusal import refusal

_SIZE = re.compile(r"(\d+)\s*(MiB|GiB)")
_APPS = "--query-compute-apps=pid,used_memory,gpu_uuid,process_name"
_GPUS = "--query-gpu=index,uuid,memory.free"
_FORM = "--format=csv,noheader,nounits"


class GpuMemory(BaseModel):
    """The server is stopped, its GPU memory waited for, and only then it is started.

    ``within`` is how long the memory may take to be free. Beside what its processes held, ``free``
    may be wanted on each of ``gpus`` (by index or UUID; all, where none is named).
    """

    model_config = STRICT

    within: Annotated[Duration, ranging("1s", "1h")] = parse("60s")
    free: str | None = Field(default=None, examples=["70GiB"])
    gpus: tuple[int | str, ...] = Field(default=(), max_length=64, examples=["[0, 1]"])
    cli: Arguments = ("nvidia-smi",)

    @field_validator("free")
    @classmethod
    def _size(cls, text: str | None) -> str | None:
        if text is not None and not _SIZE.fullmatch(text):
            raise refusal(f"{text!r} is no size", 'write MiB or GiB, like "70GiB"')
        return text

    @property
    def wanted(self) -> int:
        """MiB that must be free on each of the GPUs; 0 where nothing was said."""
        found = _SIZE.fullmatch(self.free or "")
        return int(found[1]) * (1024 if found[2] == "GiB" else 1) if found else 0


def apps_argv(memory: GpuMemory) -> tuple[str, ...]:
    return (*memory.cli, _APPS, _FORM)


def gpus_argv(memory: GpuMemory) -> tuple[str, ...]:
    return (*memory.cli, _GPUS, _FORM)


def holders(reply: Reply) -> list[GpuHolder]:
    """Read the answer to ``apps_argv``: a process and a GPU a line.

    Raises:
        ReplyError: the program does not answer, or not what it was asked for.
    """
    return [
        GpuHolder(
            pid=_number(row[0], reply),
            mib=int(row[1]) if row[1].isdecimal() else None,
            gpu=row[2][:80],
            name=row[3][:80],
        )
        for row in _rows(reply, 4)
    ]


def lacking(memory: GpuMemory, reply: Reply) -> list[str]:
    """Which GPUs have less free memory than wanted, in words, from the answer to ``gpus_argv``.

    Raises:
        ReplyError: as for ``holders``, or a GPU that is configured is not there.
    """
    rows = _rows(reply, 3)
    named = [str(gpu) for gpu in memory.gpus]
    unknown = [gpu for gpu in named if not any(gpu in row[:2] for row in rows)]
    if unknown:
        raise ReplyError(HostErrorType.MISCONFIGURED, f"the host has no GPU {unknown[0][:80]}")
    return [
        f"GPU {row[0]} has {free} MiB free, {memory.wanted} wanted"
        for row in rows
        if (not named or row[0] in named or row[1] in named)
        and (free := _number(row[2], reply)) < memory.wanted
    ]


def held_by(found: Sequence[GpuHolder], pids: Collection[int]) -> list[GpuHolder]:
    return [each for each in found if each.pid in pids]


def in_words(found: Sequence[GpuHolder]) -> str:
    """Who holds how much, for a person."""
    shown = "; ".join(_holder(each) for each in found[:8])
    return f"{shown} and {len(found) - 8} more" if len(found) > 8 else shown


def _holder(each: GpuHolder) -> str:
    much = f"{each.mib} MiB" if each.mib is not None else "memory"
    return f"process {each.pid} ({each.name}) holds {much} of {each.gpu}"


def _rows(reply: Reply, width: int) -> list[list[str]]:
    text = succeeded(reply, "nvidia-smi")
    rows = [
        [part.strip() for part in line.split(",", width - 1)]
        for line in text.splitlines()
        if line.strip()
    ]
    if any(len(row) != width for row in rows):
        raise _not_understood(reply)
    return rows


def _number(text: str, reply: Reply) -> int:
    if not text.isdecimal():
        raise _not_understood(reply)
    return int(text)


def _not_understood(reply: Reply) -> ReplyError:
    said = f"the answer of nvidia-smi can't be understood: {reply.tail()}"
    return ReplyError(HostErrorType.MISCONFIGURED, said)
