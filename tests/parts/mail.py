"""A real SMTP server on loopback that keeps the mail it takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.parts.ports import free_port


@dataclass
class Mailbox:
    """``answer`` is the server's word on each mail, with its code."""

    port: int = 0
    answer: str = "250 taken"
    mails: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd looks for this name
        if self.answer.startswith("250") and isinstance(envelope.content, bytes):
            self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        return self.answer


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    """Take mail until the block ends."""
    box = Mailbox(port=free_port())
    server = Controller(box, hostname="127.0.0.1", port=box.port)
    server.start()
    try:
        yield box
    finally:
        server.stop()
