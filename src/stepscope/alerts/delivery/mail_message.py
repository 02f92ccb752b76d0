"""Creates the e-mail of a notice; nothing in a notice can add headers to it."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime
from typing import TYPE_CHECKING

from stepscope.alerts.delivery import message
from stepscope.alerts.delivery.safe_text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.schema.alert import Notice

MAX_REFERENCES = 10


def mail_message(notice: Notice, sender: str, recipients: Sequence[str]) -> EmailMessage:
    """Creates the e-mail of a notice; it is the same for every attempt to deliver it.

    All e-mails about one rule of one run refer to the same message id, which was never sent: so mail programs
    show them as one thread.
    """
    domain = sender.rpartition("@")[2]
    threads = [_reference(domain, notice.run_id, alert.rule) for alert in message.worst_first(notice)]
    mail = EmailMessage(policy=policy.SMTP)
    mail["From"] = sender
    mail["To"] = ", ".join(recipients)
    mail["Subject"] = _without_encoded_words(message.subject(notice))
    mail["Date"] = format_datetime(datetime.fromtimestamp(notice.at_ns // 10**9, tz=timezone.utc))
    mail["Message-ID"] = _reference(domain, "notice", notice.id)
    if threads:
        mail["In-Reply-To"] = threads[0]
        mail["References"] = " ".join(dict.fromkeys(threads[:MAX_REFERENCES]))
    mail["Auto-Submitted"] = "auto-generated"
    # Not every server accepts bytes that are not ASCII.
    mail.set_content(message.text(notice), charset="utf-8", cte="quoted-printable")
    return mail


def _without_encoded_words(subject: str) -> str:
    """Keeps Python from decoding encoded words: some versions would then write line breaks in the header."""
    return one_line(subject.replace("=?", "= ?"), message.MAX_SUBJECT)


def _reference(domain: str, *parts: str) -> str:
    """Creates a message id; hashed, because names may contain any character."""
    named = "\0".join(parts).encode("utf-8", "surrogatepass")
    return f"<{hashlib.sha256(named).hexdigest()[:32]}@{domain}>"
