"""Sends alerts by e-mail through a mail server."""

from __future__ import annotations

import re
import smtplib
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

from stepscope.alerts.delivery.channel_options import Options
from stepscope.alerts.delivery.mail_message import mail_message
from stepscope.alerts.delivery.pending_recipients import MAX_NOTICES, PendingRecipients
from stepscope.alerts.delivery.safe_text import one_line
from stepscope.channels.base import Channel, DeliveryError
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.alerts.delivery.channel_options import Secret
    from stepscope.schema.alert import Notice

    Refused = dict[str, tuple[int, bytes]]

PORTS = {"starttls": 587, "tls": 465, "none": 25}
MAX_REPLY = 200

_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9.-]{1,255}")


class MailChannel(Channel):
    """Sends each notice as one e-mail to all recipients.

    Options: `host`, `sender` and `recipients`, a list (required); `security`, one of `starttls`, `tls` and
    `none`; `port`, by default that of the security; `user` and `password`; `timeout_s`, for each answer of
    the server; `ca_file`, certificates to trust instead of the system's; `allow_plain_password`, which
    allows sending the password over a connection without encryption.
    """

    def __init__(  # noqa: PLR0913 - each is an option
        self,
        *,
        host: str = "",
        port: int | None = None,
        security: str = "starttls",
        user: Secret = "",
        password: Secret = "",
        sender: str = "",
        recipients: Sequence[str] = (),
        timeout_s: float = 10.0,
        ca_file: str = "",
        allow_plain_password: bool = False,
    ) -> None:
        options = Options(
            "mail", "mail: {host: smtp.example.com, sender: a@example.com, recipients: [b@example.com]}"
        )
        self._host = options.text("host", host)
        if security not in PORTS:
            raise ConfigError(f"{options.name('security')} must be one of {', '.join(PORTS)}.")
        self._security = security
        self._port = PORTS[security] if port is None else options.whole("port", port, 1, 65_535)
        self._sender = _address(options, "sender", sender)
        self._recipients = _addresses(options, recipients)
        self._timeout_s = options.seconds("timeout_s", timeout_s)
        self._user, self._password = _login(options, user, password)
        may_be_plain = options.switch("allow_plain_password", allow_plain_password)
        if self._password and security == "none" and not may_be_plain:
            raise ConfigError(
                f"{options.name('password')} would be sent without encryption. Set security to starttls or "
                "tls, or allow_plain_password to true."
            )
        self._tls = None if security == "none" else _context(options, ca_file)
        self._pending = PendingRecipients(self._recipients)
        self._permanently_refused: dict[str, Refused] = {}
        """By the id of a notice that other recipients still wait for."""

    @property
    def target(self) -> str:
        """The recipients and the server."""
        return f"{', '.join(self._recipients)} by {self._host}"

    def send(self, notice: Notice) -> None:
        """Sends an e-mail to all pending recipients; raises an error if the server refuses any of them."""
        mail = mail_message(notice, self._sender, self._recipients)
        try:
            server = self._connected()
            try:
                refused = server.send_message(mail, self._sender, self._pending.of(notice.id))
                with suppress(smtplib.SMTPException, OSError):
                    server.quit()  # the server has accepted the e-mail, whatever it answers to this
            finally:
                server.close()
        except smtplib.SMTPRecipientsRefused as error:
            refused = error.recipients
        except (smtplib.SMTPException, OSError) as error:
            # Not chained: the server's answer to a login may repeat the password.
            raise self._failure(error) from None
        self._check_refused(notice.id, refused)

    def _check_refused(self, notice_id: str, refused: Refused) -> None:
        """Raises an error for refused recipients; those refused permanently are not tried again."""
        permanently = {address: reply for address, reply in refused.items() if _is_final(reply[0])}
        permanently = self._permanently_refused.pop(notice_id, {}) | permanently
        temporarily = [address for address in refused if address not in permanently]
        self._pending.update(notice_id, temporarily)
        if temporarily:
            self._permanently_refused[notice_id] = permanently
            if len(self._permanently_refused) > MAX_NOTICES:
                del self._permanently_refused[next(iter(self._permanently_refused))]
            raise self._refusal(refused)
        if permanently:
            raise self._refusal(permanently)

    def _connected(self) -> smtplib.SMTP:
        server: smtplib.SMTP
        if self._security == "tls":
            server = smtplib.SMTP_SSL(self._host, self._port, timeout=self._timeout_s, context=self._tls)
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=self._timeout_s)
        try:
            if self._security == "starttls":
                server.starttls(context=self._tls)
            if self._user:
                server.login(self._user, self._password)
        except BaseException:
            server.close()
            raise
        return server

    def _failure(self, error: smtplib.SMTPException | OSError) -> DeliveryError:
        server = f"The mail server {self._host}"
        if isinstance(error, smtplib.SMTPResponseException):
            code = error.smtp_code
            is_login = isinstance(error, smtplib.SMTPAuthenticationError)
            what = (
                f"the user or the password ({code})" if is_login else f"it: {_reply(code, error.smtp_error)}"
            )
            return DeliveryError(f"{server} refused {what}.", is_final=_is_final(code))
        if isinstance(error, smtplib.SMTPNotSupportedError):
            text = f"{server} does not support the configured encryption or login; nothing was sent."
            return DeliveryError(text, is_final=True)
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = f"has no trusted certificate: {error.verify_message}"
        elif TimeoutError in {type(error), type(error.__context__)}:
            reason = f"did not answer within {self._timeout_s:g} s"
        elif isinstance(error, smtplib.SMTPException):
            reason = "closed the connection"
        else:
            reason = f"cannot be reached: {error.strerror or type(error).__name__}"
        return DeliveryError(f"{server} {reason}.")

    def _refusal(self, refused: Refused) -> DeliveryError:
        named = ", ".join(f"{address} ({_reply(*reply)})" for address, reply in refused.items())
        is_final = all(_is_final(code) for code, _ in refused.values())
        return DeliveryError(f"The mail server {self._host} refused {named}.", is_final=is_final)


def _is_final(code: int) -> bool:
    return 500 <= code < 600


def _reply(code: int, reply: bytes | str) -> str:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    return one_line(f"{code} {text}", MAX_REPLY).rstrip(".")


def _login(options: Options, user: Secret, password: Secret) -> tuple[str, str]:
    login = options.optional_text("user", user), options.optional_text("password", password)
    if any(login) and not all(login):
        raise options.missing("password" if login[0] else "user")
    return login


def _addresses(options: Options, recipients: Sequence[str]) -> list[str]:
    if isinstance(recipients, str):
        raise ConfigError(f"{options.name('recipients')} must be a list, such as [a@example.com].")
    if not recipients:
        raise options.missing("recipients")
    return [_address(options, f"recipients[{place}]", address) for place, address in enumerate(recipients)]


def _address(options: Options, option: str, value: str) -> str:
    address = options.text(option, value)
    if not _ADDRESS.fullmatch(address):
        raise ConfigError(f"{options.name(option)} must be an address without a name, such as a@example.com.")
    return address


def _context(options: Options, ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=options.optional_text("ca_file", ca_file) or None)
    except OSError as error:
        reason = error.strerror or "it contains no certificate"
        raise ConfigError(f"{options.name('ca_file')} cannot be used: {reason}.") from error
