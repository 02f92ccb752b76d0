"""Posts alerts as JSON to a web address, signed so that the receiver can verify the sender."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stepscope.alerts.delivery import message
from stepscope.alerts.delivery.channel_options import MAX_TIMEOUT_S, Options
from stepscope.alerts.delivery.pinned_http import TIMEOUT_S, Network, Poster
from stepscope.alerts.delivery.web_address import read_address
from stepscope.channels.base import Channel
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.alerts.delivery.channel_options import Secret
    from stepscope.schema.alert import Notice

OWN_HEADERS = {"host", "content-length", "content-type", "connection", "transfer-encoding"}
OWN_PREFIX = "x-stepscope-"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class WebhookChannel(Channel):
    """Posts each notice as JSON.

    Options: `url` (required); `secret`, the key that signs notices; `headers`, additional headers, each text
    or a secret; `timeout_s`, for the whole request; `allow_private`, whether the address may be in a private
    network; `strict`, which allows only https and public addresses. Redirects are never followed.
    """

    def __init__(
        self,
        *,
        url: Secret = "",
        secret: Secret = "",
        headers: Mapping[str, Secret] | None = None,
        timeout_s: float = TIMEOUT_S,
        allow_private: bool = True,
        strict: bool = False,
        _network: Network | None = None,
        _now: Callable[[], float] = time.time,
    ) -> None:
        options = Options("webhook", "webhook: {url: {env: ALERT_WEBHOOK}}")
        is_strict = options.switch("strict", strict)
        may_be_private = options.switch("allow_private", allow_private) and not is_strict
        address = read_address(options.text("url", url), options.name("url"), https_only=is_strict)
        limit_s = options.seconds("timeout_s", timeout_s, TIMEOUT_S if is_strict else MAX_TIMEOUT_S)
        self._poster = Poster(address, limit_s, public_only=not may_be_private, network=_network)
        self._secret = options.optional_text("secret", secret)
        self._headers = _checked_headers(options, headers or {})
        self._now = _now

    @property
    def target(self) -> str:
        """Scheme and host; the path may be a password and is not shown."""
        return self._poster.target

    def send(self, notice: Notice) -> None:
        """Posts the fields of a notice; body and id are the same in every attempt."""
        body = json.dumps(message.fields(notice), allow_nan=False).encode()
        headers = {
            **self._headers,
            "Content-Type": "application/json",
            "User-Agent": "stepscope",
            "X-Stepscope-Id": notice.id,
            "X-Stepscope-Timestamp": str(int(self._now())),
        }
        if self._secret:
            signed = signature(self._secret, headers["X-Stepscope-Timestamp"], notice.id, body)
            headers["X-Stepscope-Signature"] = signed
        self._poster.post(body, headers)


def signature(secret: str, timestamp: str, notice_id: str, body: bytes) -> str:
    """Returns the signature of a body, its time and its id, made with the secret."""
    signed = f"{timestamp}.{notice_id}.".encode() + body
    return "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def _checked_headers(options: Options, headers: Mapping[str, Secret]) -> dict[str, str]:
    checked = {}
    if not isinstance(headers, Mapping):
        raise ConfigError(f"{options.name('headers')} must be a section of names and values.")
    for name, value in headers.items():
        if not (isinstance(name, str) and _HEADER_NAME.fullmatch(name)):
            raise ConfigError(f"{options.name('headers')} has an invalid header name.")
        if name.lower() in OWN_HEADERS or name.lower().startswith(OWN_PREFIX):
            raise ConfigError(f"{options.name('headers')} has {name}, which is set by stepscope.")
        checked[name] = options.text(f"headers.{name}", value)
        if not checked[name].isascii():
            raise ConfigError(f"{options.name(f'headers.{name}')} has a character that is not ASCII.")
    return checked
