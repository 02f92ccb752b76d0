"""A mail server on the loopback interface, with encryption and a login, that keeps what it was sent."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "alerts", "canary-mail-password"


@dataclass
class Mailbox:
    """What arrived, and whom the server refuses."""

    port: int = 0
    envelopes: list[Envelope] = field(default_factory=list)
    refuses: dict[str, str] = field(default_factory=dict)
    """By recipient, the reply."""
    answer: str = "250 OK"
    """To the content of an e-mail."""
    logins: list[str] = field(default_factory=list)
    was_encrypted: list[bool] = field(default_factory=list)

    @property
    def mails(self) -> list[EmailMessage]:
        return [message_from_bytes(envelope.content, policy=policy.default) for envelope in self.envelopes]

    async def handle_RCPT(
        self, _server: SMTP, _session: Session, envelope: Envelope, to: str, _: object
    ) -> str:
        if to in self.refuses:
            return self.refuses[to]
        envelope.rcpt_tos.append(to)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.answer.startswith("250"):
            self.envelopes.append(envelope)
            self.was_encrypted.append(session.ssl is not None)
        return self.answer

    def login(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _how: str, by: object
    ) -> AuthResult:
        assert isinstance(by, LoginPassword)
        self.logins.append(by.login.decode())
        known = (by.login, by.password) == (USER.encode(), PASSWORD.encode())
        # Not handled by us: the server then answers 535 itself.
        return AuthResult(success=known, handled=False)


@contextlib.contextmanager
def mailbox(
    starttls: ssl.SSLContext | None = None, tls: ssl.SSLContext | None = None, *, plain_login: bool = False
) -> Iterator[Mailbox]:
    """A server for as long as the block runs; with `starttls` it demands that, and a login."""
    box = Mailbox()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        box.port = free.getsockname()[1]
    options: dict[str, object] = {}
    if starttls is not None:
        options = {
            "tls_context": starttls,
            "require_starttls": True,
            "auth_required": True,
            "authenticator": box.login,
        }
    if plain_login:
        options = {"auth_require_tls": False, "authenticator": box.login}
    controller = Controller(box, hostname="127.0.0.1", port=box.port, ssl_context=tls, **options)
    controller.start()
    try:
        yield box
    finally:
        controller.stop()
