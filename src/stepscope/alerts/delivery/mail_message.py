"""Writes a notice as an e-mail whose headers nothing in the notice can add to."""

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
    """The e-mail of a notice; the same for every attempt to deliver it.

    What is told of one rule of one run refers to the same e-mail, which was never sent: that is how programs
    for e-mail come to show what is over beneath what was wrong.
    """
    domain = sender.rpartition("@")[2]
    threads = [_reference(domain, notice.run_id, told.rule) for told in message.worst_first(notice)]
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
    # Not every server takes bytes beyond ASCII as they are.
    mail.set_content(message.text(notice), charset="utf-8", cte="quoted-printable")
    return mail


def _without_encoded_words(subject: str) -> str:
    """Keeps Python from decoding what looks encoded: some versions then write the line breaks in it."""
    return one_line(subject.replace("=?", "= ?"), message.MAX_SUBJECT)


def _reference(domain: str, *parts: str) -> str:
    """An id for the header; hashed, because names may have anything in them."""
    named = "\0".join(parts).encode("utf-8", "surrogatepass")
    return f"<{hashlib.sha256(named).hexdigest()[:32]}@{domain}>"
