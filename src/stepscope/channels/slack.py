"""Posts alerts to an incoming webhook of Slack, or of compatible services: Mattermost, Discord."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from stepscope.alerts.delivery import message
from stepscope.alerts.delivery.channel_options import Options
from stepscope.alerts.delivery.pinned_http import TIMEOUT_S, Poster
from stepscope.alerts.delivery.safe_text import one_line
from stepscope.alerts.delivery.web_address import read_address
from stepscope.channels.base import Channel

if TYPE_CHECKING:
    from stepscope.alerts.delivery.channel_options import Secret
    from stepscope.schema.alert import AlertDetail, Notice

COLOURS = {"critical": "#d32f2f", "warning": "#f9a825", "info": "#1976d2"}
RESOLVED = "#2e7d32"
MAX_CHARACTERS = 5_000
"""Maximum size of all attachments together; Discord refuses messages of 6,000 characters."""

# Mattermost and Discord would notify everybody in the channel.
_MENTIONS = re.compile(r"@(?=everyone|here|channel|all)", re.IGNORECASE)


class SlackChannel(Channel):
    """Posts each notice to an incoming webhook.

    Options: `url` (required), the address that Slack shows when a webhook is added (for Discord with `/slack`
    at its end); `timeout_s`, for the whole request.
    """

    def __init__(self, *, url: Secret = "", timeout_s: float = TIMEOUT_S) -> None:
        options = Options("slack", "slack: {url: {env: SLACK_WEBHOOK}}")
        address = read_address(options.text("url", url), options.name("url"))
        self._poster = Poster(address, options.seconds("timeout_s", timeout_s))

    @property
    def target(self) -> str:
        """Scheme and host; the path is a password and is not shown."""
        return self._poster.target

    def send(self, notice: Notice) -> None:
        """Posts a notice: a short text, and an attachment with a coloured bar for each alert."""
        body = json.dumps(payload(notice)).encode()
        self._poster.post(body, {"Content-Type": "application/json", "User-Agent": "stepscope"})


def payload(notice: Notice) -> dict[str, Any]:
    """Returns a notice in Slack's format; alerts that do not fit are counted."""
    alerts = message.worst_first(notice)
    attachments: list[dict[str, Any]] = []
    size = 0
    for alert in alerts[: message.MAX_IN_TEXT]:
        attachment = _attachment(alert, notice)
        size += len(attachment["text"])
        if size > MAX_CHARACTERS:
            break
        attachments.append(attachment)
    lines = [f"{message.subject(notice)}", message.heading(notice)]
    if len(alerts) > len(attachments):
        lines.append(f"and {len(alerts) - len(attachments)} more")
    if notice.link:
        lines.append(one_line(notice.link, message.MAX_LINK))
    return {"text": escaped("\n".join(lines)), "mrkdwn": False, "attachments": attachments}


def escaped(text: str) -> str:
    """Escapes text so that Slack shows it unchanged: no links, no mentions."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MENTIONS.sub("@\N{ZERO WIDTH SPACE}", plain)


def _attachment(alert: AlertDetail, notice: Notice) -> dict[str, Any]:
    headline = message.headline(alert, notice.kind)
    lines = [headline, *(f"{name}: {fact}" for name, fact in message.facts(alert, notice))]
    return {
        "color": RESOLVED if notice.kind == "resolved" else COLOURS[alert.severity],
        "fallback": escaped(headline),
        "text": escaped("\n".join(lines)),
        "mrkdwn_in": [],
    }
