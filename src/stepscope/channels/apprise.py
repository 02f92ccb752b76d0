"""Sends alerts with the package apprise to any of its services: push, chat, text messages."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stepscope.alerts.delivery import message
from stepscope.alerts.delivery.channel_options import Options
from stepscope.alerts.delivery.pending_recipients import PendingRecipients
from stepscope.channels.base import Channel, DeliveryError
from stepscope.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepscope.alerts.delivery.channel_options import Secret
    from stepscope.schema.alert import Notice

TYPES = {"critical": "failure", "warning": "warning", "info": "info"}
LOGGERS = ("apprise", "urllib3.connectionpool")


class AppriseChannel(Channel):
    """Sends each notice with apprise.

    Options: `urls` (required), a list of apprise addresses, each text or a secret. It needs
    `pip install 'stepscope[notify]'`.
    """

    def __init__(self, *, urls: Sequence[Secret] = ()) -> None:
        options = Options("apprise", "apprise: {urls: [{env: PUSH_URL}]}")
        if not urls:
            raise options.missing("urls")
        if not isinstance(urls, list | tuple):
            raise ConfigError(f"{options.name('urls')} must be a list, such as [{{env: PUSH_URL}}].")
        try:
            import apprise  # with its extra only
        except ImportError as error:
            raise MissingExtra("notify", needed_for="The channel apprise") from error
        asset = apprise.AppriseAsset(async_mode=False, interpret_escapes=False, interpret_emojis=False)
        asset.app_id, asset.app_desc = "stepscope", "stepscope"
        asset.http_redirects = False
        self._names: list[str] = []
        self._services: list[apprise.Apprise] = []
        for place, url in enumerate(urls):
            text = options.text(f"urls[{place}]", url)
            service = apprise.Apprise(asset=asset)
            with _silent():
                is_known = service.add(text)
            if not is_known:
                raise ConfigError(f"{options.name(f'urls[{place}]')} is not an address that apprise knows.")
            self._services.append(service)
            self._names.append(_service_names(service))
        self._pending = PendingRecipients(range(len(self._services)))

    @property
    def target(self) -> str:
        """The names of the services."""
        return ", ".join(self._names)

    def send(self, notice: Notice) -> None:
        """Sends a notice to each service that has not accepted it yet."""
        kind = "success" if notice.kind == "resolved" else TYPES[notice.severity]
        title, body = message.subject(notice), message.text(notice)
        failed = []
        for place in self._pending.of(notice.id):
            with _silent():
                is_sent = self._services[place].notify(body, title, notify_type=kind, body_format="text")
            if not is_sent:
                failed.append(place)
        self._pending.update(notice.id, failed)
        if failed:
            services = ", ".join(f"urls[{place}] ({self._names[place]})" for place in failed)
            raise DeliveryError(f"apprise could not deliver to {services}.")


def _service_names(service: Any) -> str:
    return ", ".join(str(plugin.service_name) for plugin in service)


@contextmanager
def _silent() -> Iterator[None]:
    """Disables the logging of apprise, which would log addresses that contain passwords."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled
