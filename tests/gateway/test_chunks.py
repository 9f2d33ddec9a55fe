"""What mirrors hold is what is counted, after any interleaving, and in the end it is nothing."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from gateway.chunks import MOST_CHUNKS, Budget, Buffer, offer

LIMIT = 100


class _Held(bytes):
    """A chunk that can be told from another with the same bytes."""


class Accounting(RuleBasedStateMachine):
    """Requests with some mirrors each, whose sockets take, let go, and are cut off at any time.

    ``places`` is the truth: for each buffer the chunks that it or its socket really has.
    """

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(LIMIT)
        self.places: dict[Buffer, list[_Held]] = {}
        self.handed: dict[Buffer, _Held] = {}
        self.limits: dict[Buffer, int] = {}
        self.highest = 0

    @rule(target=requests, limits=st.lists(st.integers(1, 60), min_size=1, max_size=4))
    def a_request_begins(self, limits: list[int]) -> tuple[Buffer, ...]:
        buffers = tuple(Buffer(limit) for limit in limits)
        for buffer, limit in zip(buffers, limits, strict=True):
            self.places[buffer] = []
            self.limits[buffer] = limit
        return buffers

    @rule(request=requests, size=st.integers(1, 50))
    def production_reads(self, request: tuple[Buffer, ...], size: int) -> None:
        data = _Held(b"x" * size)
        open_before = [each for each in request if not each.closed]
        room = {
            each: sum(map(len, self.places[each])) + size <= self.limits[each]
            for each in open_before
        }
        full, has_room = offer(data, request, self.budget)
        assert full == [each for each in open_before if not room[each]]
        for each in full:
            self._closed(each)
        taking = [each for each in open_before if room[each]]
        fits = not taking or self._really_held() + size <= LIMIT
        assert has_room is fits
        for each in taking:
            if fits:
                self.places[each].append(data)
            else:
                assert each.closed
                self._closed(each)

    @rule(request=requests, which=st.integers(0, 3))
    def a_socket_takes(self, request: tuple[Buffer, ...], which: int) -> None:
        buffer = request[which % len(request)]
        waiting = [each for each in self.places[buffer] if each is not self.handed.get(buffer)]
        data = buffer.take()
        if buffer in self.handed or not waiting:
            assert data is None
        else:
            assert data is waiting[0]  # shared, never copied
            self.handed[buffer] = waiting[0]

    @rule(request=requests, which=st.integers(0, 3))
    def a_socket_lets_go(self, request: tuple[Buffer, ...], which: int) -> None:
        """Also one that has nothing."""
        buffer = request[which % len(request)]
        buffer.let_go()
        self._let_go(buffer)

    @rule(request=requests, which=st.integers(0, 3))
    def a_mirror_is_cancelled(self, request: tuple[Buffer, ...], which: int) -> None:
        buffer = request[which % len(request)]
        buffer.close()
        self._closed(buffer)

    @rule(target=requests, request=consumes(requests))
    def the_client_disconnects(self, request: tuple[Buffer, ...]) -> object:
        for buffer in request:
            buffer.close()
            self._closed(buffer)
            buffer.let_go()
            self._let_go(buffer)
            assert buffer.is_empty
            assert not self.places[buffer]
        return multiple()

    def _closed(self, buffer: Buffer) -> None:
        handed = self.handed.get(buffer)
        self.places[buffer] = [each for each in self.places[buffer] if each is handed]

    def _let_go(self, buffer: Buffer) -> None:
        handed = self.handed.pop(buffer, None)
        self.places[buffer] = [each for each in self.places[buffer] if each is not handed]

    def _really_held(self) -> int:
        distinct = {id(each): each for held in self.places.values() for each in held}
        return sum(map(len, distinct.values()))

    @invariant()
    def what_is_counted_is_what_is_held(self) -> None:
        held = self._really_held()
        self.highest = max(self.highest, held)
        assert self.budget.retained == held <= LIMIT
        assert self.highest <= self.budget.peak <= LIMIT

    @invariant()
    def no_buffer_is_over_its_limit(self) -> None:
        for buffer, held in self.places.items():
            assert sum(map(len, held)) <= self.limits[buffer]

    def teardown(self) -> None:
        for buffer in self.places:
            buffer.close()
            buffer.let_go()
        assert self.budget.retained == 0


TestAccounting = Accounting.TestCase
TestAccounting.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_chunks_are_bounded_by_their_number_too() -> None:
    buffer, budget = Buffer(1_000_000), Budget(1_000_000)
    for _ in range(MOST_CHUNKS):
        assert offer(b"x", [buffer], budget) == ([], True)
    assert offer(b"x", [buffer], budget) == ([buffer], True)
    assert budget.retained == 0
    assert budget.peak == MOST_CHUNKS
