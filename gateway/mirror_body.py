"""The body of one mirrored request as its candidate gets it: framed, and edited where that is
configured. What an edit holds is charged to the budget of all mirrors.
"""

from gateway.chunks import Budget, Own
from gateway.editing import Edit, Editor, Part
from gateway.heads import RequestHead
from gateway.rewriting import LAST_CHUNK


class OverBudget(Exception):
    """There is no room for what the edit holds, or the body has too many parts to edit."""


class Body:
    """``length`` is what the head says, none for a chunked body.

    A body that is edited as it comes has no length that could be known: it is given the longest
    that it can have, and filled up with spaces, which mean nothing behind a JSON object.
    """

    __slots__ = ("_budget", "_edit", "_editor", "_left", "_own", "length")

    def __init__(self, head: RequestHead, edit: Edit | None, budget: Budget) -> None:
        self.length = head.length
        self._edit = edit if head.chunked or head.length else None
        self._budget = budget
        self._editor: Editor | None = None
        self._left = 0

    def whole(self, data: bytes) -> list[Part]:
        """A body that came in one piece, so that its length is known.

        Raises:
            OverBudget
        """
        if self._edit is None or self._edit.leaves(data):
            return [data] if self.length is not None else self._framed([data])
        editor = self._begun(self._edit)
        parts = self._charged(data, editor.feed(data) + editor.end())
        if self.length is None:
            return self._framed(parts)
        self.length = sum(map(len, parts))
        return parts

    def first(self, data: bytes) -> list[Part]:
        """The first bytes of a body that is still coming.

        Raises:
            OverBudget
        """
        if self._edit is not None and not self._edit.is_not_for(data):
            self._begun(self._edit)
            if self.length is not None:
                self.length += self._edit.growth
                self._left = self.length
        return self.part(data)

    def _begun(self, edit: Edit) -> Editor:
        self._own = Own(self._budget)
        self._editor = editor = Editor(edit)
        return editor

    def part(self, data: bytes) -> list[Part]:
        """The next bytes; none where all of them are held back.

        Raises:
            OverBudget
        """
        if self._editor is None:
            return self._framed([data])
        return self._framed(self._charged(data, self._editor.feed(data)))

    def tail(self) -> list[Part]:
        """What is still to be sent behind the last bytes."""
        parts = self._framed(self._editor.end()) if self._editor is not None else []
        if self.length is None:
            return [*parts, LAST_CHUNK]
        if self._editor is not None and self._left:
            parts.append(b" " * self._left)
        return parts

    def let_go(self) -> None:
        """The socket has all that it was handed."""
        if self._editor is not None:
            self._own.hold(len(self._editor.held))

    def close(self) -> None:
        """Nothing is held, and nothing more is to be sent."""
        if self._editor is not None:
            self._own.hold(0)
            self._editor = None

    def _charged(self, data: bytes, parts: list[Part]) -> list[Part]:
        assert self._editor is not None
        own = sum(len(each) for each in parts if each is not data and isinstance(each, bytes))
        if self._editor.gave_up or not self._own.hold(own + len(self._editor.held)):
            raise OverBudget
        return parts

    def _framed(self, parts: list[Part]) -> list[Part]:
        size = sum(map(len, parts))
        if self.length is not None:
            self._left -= size
            return parts
        return [b"%x\r\n" % size, *parts, b"\r\n"] if size else []
