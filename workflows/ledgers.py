"""What the guards of servers and of machines have in common as entities: input, answers, page."""

from collections.abc import Callable
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from fleet.contracts.guard import Claim, Ledger
    from fleet.contracts.names import Message
    from fleet.details import code, plain, utc
    from fleet.ledger import MEMORY
    from fleet.policy import DailyBudget

_LONGEST_KEY = 300
#: In the ledger of a machine the server's name stands before it.
_LONGEST_HOST_KEY = 400

_Input = TypeVar("_Input", bound=Message)
_Answer = TypeVar("_Answer")


def read(start: RawValue, wanted: type[_Input]) -> _Input | None:
    """The input of an entity; none where it can't be understood."""
    try:
        found: _Input = workflow.payload_converter().from_payload(start.payload, wanted)
        return wanted.model_validate(found)
    except Exception as problem:  # noqa: BLE001 - whatever it is, the entity has to live
        workflow.logger.error("a guard's history can't be read: %s", type(problem).__name__)
        return None


def answered(who: str, decide: Callable[[], _Answer]) -> _Answer:
    """Any exception but an ``ApplicationError`` would stop the entity for ever."""
    try:
        return decide()
    except Exception as problem:
        raise ApplicationError(
            f"{who}: the guard can't work with this: {problem}",
            type="GuardRequest",
            non_retryable=True,
        ) from problem


def check_claim(request: Claim, *, of_host: bool = False) -> None:
    """Raises ValueError where the ledger could not judge it."""
    check_key(request.key, of_host=of_host)
    if isinstance(request.budget, DailyBudget) and request.day_start is None:
        raise ValueError("a budget by calendar day needs day_start, the local midnight")


def check_key(key: str, *, of_host: bool = False) -> None:
    """Raises ValueError."""
    longest = _LONGEST_HOST_KEY if of_host else _LONGEST_KEY
    if not 0 < len(key) <= longest:
        raise ValueError(f"a take is named by a key of 1 to {longest} characters")


def check_proof(proof: str) -> None:
    """Raises ValueError."""
    if not proof.strip():
        raise ValueError("a take is given back only on proof that no command was sent")


def facts(state: Ledger) -> list[str]:
    lost = f"- the ledger's history was **lost** at {utc(state.lost_at)}" if state.lost_at else ""
    count = f"- restarts in the ledger, of the last {MEMORY.days} days: {len(state.takes)}"
    resets = [
        f"- **reset** {utc(each.at)} by {plain(each.who)}: {plain(each.why)}"
        for each in reversed(state.resets)
    ]
    return [f"{lost}: its budget was used up then" if lost else "", *resets, count]


def rows(state: Ledger) -> list[str]:
    """The ledger in Markdown, newest first."""
    return [
        f"- `{taken.at:%Y-%m-%d %H:%M:%S}` UTC by {plain(taken.by or 'steady')},"
        f" for {code(taken.incident or taken.key)}"
        f"{f' on {code(taken.server)}' if taken.server else ''}"
        f"{f': {plain(taken.why)}' if taken.why else ''}"
        for taken in reversed(state.takes)
    ]
