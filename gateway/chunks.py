"""What mirrors hold of requests' bodies, accounted for to the byte. No I/O happens here.

A chunk is shared by all mirrors of its request, and never copied. It counts once against the budget
of the process, however many hold it, from the moment that it is offered until the last mirror's
socket has let go of it: a buffer that it has left for a socket is still a place where it is.
"""

from collections import deque
from collections.abc import Iterable

#: More chunks than this in one buffer overflow it as well: each costs more than its bytes.
MOST_CHUNKS = 4096


class Budget:
    """The bytes that all mirrors of a process retain now and retained at most; both in bytes."""

    __slots__ = ("limit", "peak", "retained")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.retained = 0
        self.peak = 0

    def take(self, count: int) -> bool:
        """Retain so many more, unless that would go over the limit."""
        if self.retained + count > self.limit:
            return False
        self.retained += count
        self.peak = max(self.peak, self.retained)
        return True

    def give_back(self, count: int) -> None:
        self.retained -= count


class Chunk:
    """Some bytes of a body, and how many mirrors still hold them."""

    __slots__ = ("_budget", "_holders", "data")

    def __init__(self, data: bytes, holders: int, budget: Budget) -> None:
        self.data = data
        self._holders = holders
        self._budget = budget

    def let_go(self) -> None:
        """One holder less; the last one's bytes count no longer."""
        self._holders -= 1
        if self._holders == 0:
            self._budget.give_back(len(self.data))


class Buffer:
    """What one mirrored request has still to send, in order; ``limit`` in bytes.

    A chunk that was taken out is in a socket's hands until ``let_go``; until then it fills the
    buffer as before. ``close`` gives up all that is waiting, but not what a socket has.
    """

    __slots__ = ("_handed", "_limit", "_size", "_waiting", "closed")

    def __init__(self, limit: int) -> None:
        self.closed = False
        self._limit = limit
        self._size = 0
        self._waiting: deque[Chunk] = deque()
        self._handed: Chunk | None = None

    def has_room(self, count: int) -> bool:
        return self._size + count <= self._limit and len(self._waiting) < MOST_CHUNKS

    def put(self, chunk: Chunk) -> None:
        self._waiting.append(chunk)
        self._size += len(chunk.data)

    def take(self) -> bytes | None:
        """The next bytes for the socket, which has one chunk at a time; none where none waits."""
        if self._handed is not None or not self._waiting:
            return None
        self._handed = self._waiting.popleft()
        return self._handed.data

    def let_go(self) -> None:
        """The socket has written, or thrown away, what it was handed."""
        handed, self._handed = self._handed, None
        if handed is not None:
            self._size -= len(handed.data)
            handed.let_go()

    def close(self) -> None:
        self.closed = True
        while self._waiting:
            chunk = self._waiting.popleft()
            self._size -= len(chunk.data)
            chunk.let_go()

    @property
    def is_last(self) -> bool:
        """Nothing waits behind what was taken."""
        return not self._waiting

    @property
    def is_empty(self) -> bool:
        """Nothing waits, and no socket has anything."""
        return self._handed is None and not self._waiting


class Own:
    """What one mirrored request holds of a body for itself, beside the chunks that it shares."""

    __slots__ = ("_budget", "_count")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._count = 0

    def hold(self, count: int) -> bool:
        """Hold so many bytes from now on, unless the budget has no room for more."""
        if count > self._count and not self._budget.take(count - self._count):
            return False
        if count < self._count:
            self._budget.give_back(self._count - count)
        self._count = count
        return True


def offer(data: bytes, buffers: Iterable[Buffer], budget: Budget) -> tuple[list[Buffer], bool]:
    """Give the next bytes of a body to the buffers that are open.

    Gives those that were full, and whether the budget had room. A full buffer gets nothing, and is
    closed; where the budget has no room, nobody gets anything, and all are closed.
    """
    full: list[Buffer] = []
    taking: list[Buffer] = []
    for buffer in buffers:
        if not buffer.closed:
            (taking if buffer.has_room(len(data)) else full).append(buffer)
    for buffer in full:
        buffer.close()
    if not taking:
        return full, True
    if not budget.take(len(data)):
        for buffer in taking:
            buffer.close()
        return full, False
    chunk = Chunk(data, len(taking), budget)
    for buffer in taking:
        buffer.put(chunk)
    return full, True
