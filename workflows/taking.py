"""Taking one restart out of the budgets of a server and of its machine, and giving it back."""

from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet.config import ServerSpec
    from fleet.contracts.fleet import PresentPolicy
    from fleet.contracts.guard import (
        GiveBackRequest,
        HostShare,
        Refuser,
        TakeRequest,
        TakeResult,
    )
    from fleet.contracts.remediation import Phase
    from workflows.case import Case
    from workflows.cure import Facts


class Taking:
    def __init__(self, case: Case) -> None:
        self._case, self._book, self._orders = case, case.book, case.orders

    async def take(self, facts: Facts, key: str) -> TakeResult:
        """Ask both ledgers. A person's order is not kept waiting by an earlier restart's cooldown;
        automation is, whoever ordered that restart.
        """
        self._book.enter(Phase.TAKING, "one restart is taken from the budget")
        order = self._orders.restart_now
        took = await self._case.hands.take(
            TakeRequest(
                server=self._case.server,
                incident=self._case.incident.id,
                key=key,
                budget=facts.policy.budget,
                cooldown=facts.policy.cooldown,
                by=order.who if order is not None else "steady",
                why=order.why if order is not None else "",
                heeds_cooldown=order is None,
                host=share(facts.present, facts.spec),
            )
        )
        if took.granted:
            self._book.note(f"budget: one restart taken, {took.left} left")
        else:
            self._book.note(f"budget: refused, {took.why}")
        return took

    async def give_back(self, facts: Facts, key: str, proof: str) -> None:
        self._book.note(f"budget: given back, {proof}")
        await self._case.hands.give_back(
            GiveBackRequest(
                server=self._case.server,
                key=key,
                proof=proof,
                machine=facts.present.machine or "",
            )
        )

    async def cool(self, until: datetime) -> None:
        """Somebody else's restart cools down: what the server shows until then means nothing."""
        self._book.enter(
            Phase.PERSISTING, "looks again when another restart has cooled down", until
        )
        await self._case.sleep(
            until, "cooldown after a restart by somebody else", lambda: self._orders.by_hand
        )


def share(present: PresentPolicy, spec: ServerSpec) -> HostShare | None:
    """The machine's budget; none where ``fleet`` has founded no guard for it yet."""
    if present.machine is None or spec.host is None:
        return None
    budget = spec.host.budget
    return HostShare(machine=present.machine, budget=budget)


def refused(took: TakeResult) -> tuple[str, str]:
    """What people are told: whose budget it is, and when the next restart is free."""
    whose = (
        "the restart budget of its host"
        if took.refused_by is Refuser.HOST
        else "the restart budget"
    )
    then = f"; the next is free at {took.next_at:%Y-%m-%d %H:%M:%S} UTC" if took.next_at else ""
    return f"{whose} is used up", f"{took.why}{then}"
