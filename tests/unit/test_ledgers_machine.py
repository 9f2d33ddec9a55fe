"""Two servers on one machine, each with its ledger, and somebody else who restarts them as well.

The protocol between the ledgers is the real one (``activities.ledgers``), without Temporal, and it
may be cut off at any message. Beside it stands what really happened, kept in the plainest way.
"""

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from activities.ledgers import Guard, Ledgers, host_key, server_guard
from fleet import foreign, guard, ledger
from fleet.contracts.guard import (
    GiveBackRequest,
    GuardState,
    GuardUpdate,
    HostLedger,
    HostShare,
    Sight,
    StartRequest,
    Take,
    TakeRequest,
    TakeResult,
)
from fleet.policy import RollingBudget

MACHINE = "rack.internal:22"
SERVERS = ("gpu-1", "gpu-2")
BEGAN = datetime(2026, 3, 2, 12, tzinfo=UTC)
WINDOWS = [timedelta(hours=hours) for hours in (1, 24, 24 * 7)]
SHORT = st.timedeltas(timedelta(0), timedelta(minutes=20))
LONG = st.timedeltas(timedelta(minutes=20), timedelta(hours=20)) | st.just(timedelta(days=9))

T = TypeVar("T")


class Cut(Exception):
    """The worker died at this message."""


class Books(Ledgers):
    """Both kinds of ledgers in this process. ``cut_at``: the message that is not sent any more."""

    def __init__(self) -> None:
        self.now = BEGAN
        self.own = {server_guard(name).id: guard.founded(name) for name in SERVERS}
        self.host = HostLedger(machine=MACHINE)
        self.cut_at = 0

    def state(self, server: str) -> GuardState:
        return self.own[server_guard(server).id]

    def _count(self) -> None:
        self.cut_at -= 1
        if self.cut_at == 0:
            raise Cut

    async def ask(
        self, guard_: Guard, update: GuardUpdate, request: Any, answer: type[Any], asker: str
    ) -> Any:
        self._count()
        if guard_.id not in self.own:
            return self._ask_host(update, request)
        decide: dict[GuardUpdate, Any] = {
            GuardUpdate.TAKE: guard.take,
            GuardUpdate.GIVE_BACK: guard.give_back,
            GuardUpdate.STARTED: foreign.started,
        }
        self.own[guard_.id], result = decide[update](self.own[guard_.id], request, self.now)
        return result

    def _ask_host(self, update: GuardUpdate, request: Any) -> Any:
        if update is GuardUpdate.GIVE_BACK:
            self.host = ledger.give_back(self.host, request, self.now)
            return None
        assert update is GuardUpdate.TAKE
        self.host, result = ledger.take(self.host, request, self.now, request.server)
        return result

    async def _book(self, machine: str, take: Take) -> None:
        self._count()
        self.host = ledger.with_takes(self.host, [take], self.now)


class Server:
    """What really runs there, and what each sight saw of it last."""

    def __init__(self, name: str) -> None:
        self.name, self.process, self.number = name, "p0", 0
        self.seen = dict.fromkeys(Sight, "p0")
        #: The process that steady's newest restart started, where a remediation has seen it.
        self.ours = ""
        #: A restart that was granted and whose command has not left yet.
        self.pending = ""

    def start(self) -> None:
        self.number += 1
        self.process = f"p{self.number}"


class Rack(RuleBasedStateMachine):
    @initialize(
        limit=st.integers(0, 4),
        total=st.integers(0, 6),
        window=st.sampled_from(WINDOWS),
        span=st.sampled_from(WINDOWS),
    )
    def found(self, limit: int, total: int, window: timedelta, span: timedelta) -> None:
        self.books = Books()
        self.budget = RollingBudget(limit=limit, window=window)
        self.total = RollingBudget(limit=total, window=span)
        self.servers = {name: Server(name) for name in SERVERS}
        self.granted: dict[tuple[str, str], datetime] = {}
        self.spent: set[tuple[str, str]] = set()
        self.cut_off: dict[tuple[str, str], int] = {}
        self.others = dict.fromkeys(SERVERS, 0)
        self.booked: dict[str, set[str]] = {name: set() for name in (*SERVERS, MACHINE)}
        self.keys = 0

    # --- what steady does ------------------------------------------------------------------------

    @rule(name=st.sampled_from(SERVERS), cut=st.integers(0, 3), script=st.booleans())
    def a_restart_is_asked_for(self, name: str, cut: int, script: bool) -> None:
        if self.servers[name].pending:
            return
        self.keys += 1
        key = f"{'script' if script else 'key'}-{self.keys:03}"
        full = self._full(name)
        took = self._take(name, key, cut)
        assert took is None or took.granted or full, f"refused, with some left: {took.why}"

    @precondition(lambda self: self.cut_off)
    @rule(data=st.data())
    def one_that_was_cut_off_is_retried(self, data: st.DataObject) -> None:
        name, key = data.draw(st.sampled_from(sorted(self.cut_off)))
        if not self.servers[name].pending:
            self._take(name, key)

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def a_granted_one_is_asked_for_again(self, data: st.DataObject) -> None:
        name, key = data.draw(st.sampled_from(sorted(self.granted)))
        before = dict(self.granted), self._left()
        if self.granted[name, key] > self.books.now - ledger.MEMORY:
            took = self._run(self.books.take(self._request(name, key), "again"))
            assert took is not None
            assert took.granted
        assert (dict(self.granted), self._left()) == before

    @precondition(lambda self: self.spent)
    @rule(data=st.data())
    def a_returned_one_is_asked_for_late(self, data: st.DataObject) -> None:
        name, key = data.draw(st.sampled_from(sorted(self.spent)))
        took = self._run(self.books.take(self._request(name, key), "late"))
        assert took is not None
        assert not took.granted

    @rule(name=st.sampled_from(SERVERS), cut=st.integers(0, 2))
    def its_command_was_not_sent(self, name: str, cut: int) -> None:
        server = self.servers[name]
        if server.pending:
            key, server.pending = server.pending, ""
            self._give_back(name, key, cut)
            self._give_back(name, key)

    @precondition(lambda self: self.spent)
    @rule(data=st.data())
    def what_was_given_back_is_given_back_again(self, data: st.DataObject) -> None:
        before = self._left()
        self._give_back(*data.draw(st.sampled_from(sorted(self.spent))))
        assert self._left() == before

    @rule(name=st.sampled_from(SERVERS), is_seen=st.booleans())
    def its_command_is_carried_out(self, name: str, is_seen: bool) -> None:
        server = self.servers[name]
        if not server.pending:
            return
        of_script, server.pending = server.pending.startswith("script"), ""
        server.start()
        if not of_script:
            server.ours = server.process if is_seen else ""
            server.seen[Sight.HOST] = server.process if is_seen else server.seen[Sight.HOST]

    # --- what somebody else does, and who sees it ------------------------------------------------

    @rule(name=st.sampled_from(SERVERS))
    def somebody_else_restarts_it(self, name: str) -> None:
        self.others[name] += 1
        self.servers[name].start()

    @rule(name=st.sampled_from(SERVERS), sight=st.sampled_from(Sight), cut=st.integers(0, 2))
    def it_is_looked_at(self, name: str, sight: Sight, cut: int) -> None:
        server = self.servers[name]
        before, now = server.seen[sight], server.process
        acts = server.pending and not server.pending.startswith("script")
        if before == now or (sight is Sight.HOST and acts):
            return
        request = StartRequest(
            server=name,
            machine=MACHINE,
            sight=sight,
            process=now,
            ours=server.ours if sight is Sight.HOST and before == server.ours else "",
            cooldown=timedelta(minutes=10),
        )
        self.books.cut_at = cut
        answers = [self._run(self.books.started(request, "once")) for _ in range(3)]
        server.seen[sight] = now
        takes = [each.take.key if each and each.take else "" for each in answers[1:]]
        assert takes[0] == takes[1], "told of the same one again, it answers the same"
        self._note_foreign()

    @rule(step=SHORT)
    def time_passes(self, step: timedelta) -> None:
        self.books.now += step

    @precondition(lambda self: not any(each.pending for each in self.servers.values()))
    @rule(step=LONG)
    def much_time_passes_while_sweeps_go_on(self, step: timedelta) -> None:
        """No command is under way for so long: a restart explains a process for a day at most."""
        for name in SERVERS:
            for sight in Sight:
                self.it_is_looked_at(name, sight, 0)
        self.books.now += step

    @rule()
    def the_workflows_continue_as_new(self) -> None:
        books = self.books
        books.own = {
            name: GuardState.model_validate_json(state.model_dump_json())
            for name, state in books.own.items()
        }
        books.host = HostLedger.model_validate_json(books.host.model_dump_json())

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def no_window_holds_more_than_either_limit(self) -> None:
        for name in SERVERS:
            self._hold([at for (of, _), at in self.granted.items() if of == name], self.budget)
        self._hold(list(self.granted.values()), self.total)

    def _hold(self, moments: list[datetime], budget: RollingBudget) -> None:
        for start in moments:
            inside = sum(start <= at < start + budget.window for at in moments)
            assert inside <= budget.limit

    @invariant()
    def no_more_starts_are_foreign_than_there_were(self) -> None:
        """So none of steady's own is, and none of theirs counts twice, whoever sees it."""
        for name in SERVERS:
            assert len(self.booked[name]) <= self.others[name]
        assert len(self.booked[MACHINE]) <= sum(self.others.values())

    @invariant()
    def nothing_stands_in_a_ledger_twice(self) -> None:
        for kept in (self.books.host, *self.books.own.values()):
            keys = [taken.key for taken in kept.takes]
            assert len(keys) == len(set(keys))

    @invariant()
    def the_machine_has_no_foreign_start_that_no_server_has(self) -> None:
        of_servers = {host_key(name, key) for name in SERVERS for key in self.booked[name]}
        assert self.booked[MACHINE] <= of_servers

    # --- how -------------------------------------------------------------------------------------

    def _run(self, story: Coroutine[Any, Any, T]) -> T | None:
        """None where it was cut off. Nothing in it waits, so that it needs no event loop."""
        try:
            story.send(None)
        except StopIteration as end:
            found: T = end.value
            return found
        except Cut:
            return None
        finally:
            self.books.cut_at = 0
        raise AssertionError("it waits for something")

    def _request(self, name: str, key: str) -> TakeRequest:
        return TakeRequest(
            server=name,
            incident="" if key.startswith("script") else f"{name}@1",
            key=key,
            budget=self.budget,
            cooldown=timedelta(minutes=10),
            by="deploy" if key.startswith("script") else "steady",
            host=HostShare(machine=MACHINE, budget=self.total),
        )

    def _take(self, name: str, key: str, cut: int = 0) -> TakeResult | None:
        self.books.cut_at = cut
        took = self._run(self.books.take(self._request(name, key), "asker"))
        if took is None:
            self.cut_off[name, key] = 1
            return None
        self.cut_off.pop((name, key), None)
        if took.granted:
            self.granted[name, key] = self.books.now
            self.servers[name].pending = key
        else:
            assert all(taken.key != key for taken in self.books.state(name).takes)
        return took

    def _give_back(self, name: str, key: str, cut: int = 0) -> None:
        before = self._left()
        request = GiveBackRequest(server=name, key=key, proof="nothing was sent", machine=MACHINE)
        self.books.cut_at = cut
        self._run(self.books.give_back(request, "asker"))
        at = self.granted.pop((name, key), None)
        if at is not None and at > self.books.now - ledger.MEMORY:
            self.spent.add((name, key))
        self._note_foreign()
        for mine, then, now in zip((*SERVERS, MACHINE), before, self._left(), strict=True):
            assert now - then in ((0, 1) if mine in (name, MACHINE) else (0,))

    def _left(self) -> list[int]:
        books = self.books
        own = [ledger.budget_left(books.state(name), self.budget, books.now) for name in SERVERS]
        return [*own, ledger.budget_left(books.host, self.total, books.now)]

    def _full(self, name: str) -> bool:
        """Whether what was really taken, and what others started, leaves none, in either ledger.

        A take that was cut off may stand in a ledger: it counts more, never less.
        """
        left = dict(zip((*SERVERS, MACHINE), self._left(), strict=True))
        return not left[name] or not left[MACHINE]

    def _note_foreign(self) -> None:
        of: list[tuple[str, GuardState | HostLedger]] = [
            *((name, self.books.state(name)) for name in SERVERS),
            (MACHINE, self.books.host),
        ]
        for name, kept in of:
            self.booked[name] |= {t.key for t in kept.takes if t.by == foreign.FOREIGN}


TestRack = Rack.TestCase
TestRack.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
