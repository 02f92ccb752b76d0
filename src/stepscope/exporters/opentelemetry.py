"""Sends metrics of live runs to an OpenTelemetry collector, over OTLP/HTTP."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from stepscope.config.secret import resolve_secret
from stepscope.errors import ConfigError
from stepscope.exporters.base import Feed
from stepscope.opentelemetry.sender import Sender, check_library
from stepscope.opentelemetry.series import SeriesOfRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepscope.exporters.base import Table
    from stepscope.schema.run import Process
    from stepscope.schema.sample import DeviceFacts

    Secret = str | Mapping[str, str]

MIN_INTERVAL_S, MAX_INTERVAL_S = 1.0, 3600.0
IDLE_S = 600.0
"""How long a run may record nothing before its counters are dropped; later ones begin again."""
METRICS_PATH = "/v1/metrics"
SECTION = "exporters.opentelemetry"

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class OpenTelemetry(Feed):
    """Sends the newest point of each series at an interval, with the time at which it was recorded.

    Options: `endpoint`, such as http://localhost:4318, else that of OTEL_EXPORTER_OTLP_ENDPOINT; `headers`,
    each text or a secret; `interval_s`, the time between two requests.
    """

    is_remote: ClassVar[bool] = True

    def __init__(
        self,
        *,
        endpoint: str = "",
        headers: Mapping[str, Secret] | None = None,
        interval_s: float = 10.0,
        _now: Callable[[], float] = time.monotonic,
    ) -> None:
        if not MIN_INTERVAL_S <= interval_s <= MAX_INTERVAL_S:
            raise ConfigError(
                f"{SECTION}.interval_s is {interval_s:g}; it must be from {MIN_INTERVAL_S:g} to "
                f"{MAX_INTERVAL_S:g} seconds."
            )
        self._sender = Sender(_checked_endpoint(endpoint), _checked_headers(headers or {}))
        check_library()
        self._interval_s, self._now = interval_s, _now
        self._next_send = _now() + interval_s
        self._names: dict[str, str] = {}
        self._devices: dict[str, DeviceFacts] = {}
        self._runs: dict[tuple[str, str], SeriesOfRun] = {}
        self._touched: dict[tuple[str, str], float] = {}
        """When each run last recorded something on a host."""
        self._newest: Table | None = None
        """The rows that were added last: after a failed request the same rows come again."""
        self._held = 0

    @property
    def held(self) -> int:
        """The values since the last request that succeeded."""
        return self._held

    def begin(self, process: Process) -> None:
        """Notes the name of a run."""
        self._names[process.run_id] = process.name

    def describe(self, facts: DeviceFacts) -> None:
        """Notes the model of a GPU."""
        self._devices[facts.device] = facts

    def take(self, table: Table) -> None:
        """Adds rows, and sends what is new when it is time."""
        if table is not self._newest:
            self._newest = table
            place = (table.source.run_id, table.source.host)
            self._runs.setdefault(place, SeriesOfRun()).add(table, self._devices)
            self._touched[place] = self._now()
            self._held += table.values.size
        if self._now() >= self._next_send:
            self._send()

    def finish(self, run_id: str, segment: str, rank: int) -> None:
        """Sends the last points of a rank that has ended."""
        self._send()

    def close(self) -> None:
        """Sends what is left."""
        try:
            self._send()
        finally:
            self._sender.close()

    def _send(self) -> None:
        unsent = {place: series for place, run in self._runs.items() if (series := run.unsent())}
        if unsent:
            self._sender.send(
                {place: (self._names.get(place[0], place[0]), series) for place, series in unsent.items()}
            )
        for series in unsent.values():
            for member in series:
                member.sent_ns = member.time_ns
        self._held = 0
        self._next_send = self._now() + self._interval_s
        self._drop_idle()

    def _drop_idle(self) -> None:
        for place, touched in list(self._touched.items()):
            if self._now() - touched > IDLE_S:
                del self._touched[place], self._runs[place]


def _checked_endpoint(endpoint: str) -> str:
    """The address that metrics are posted to; an address without a path gets that of metrics."""
    if not endpoint:
        return ""
    try:
        parts = urlsplit(endpoint)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        # Without the value: it may have a password.
        raise ConfigError(f"{SECTION}.endpoint must be an address such as http://localhost:4318.")
    return endpoint if parts.path.strip("/") else parts._replace(path=METRICS_PATH).geturl()


def _checked_headers(headers: Mapping[str, Secret]) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise ConfigError(f"{SECTION}.headers must be a section of names and values.")
    checked = {}
    for name, value in headers.items():
        if not (isinstance(name, str) and _HEADER_NAME.fullmatch(name)):
            raise ConfigError(f"{SECTION}.headers has an invalid header name.")
        try:
            text = resolve_secret(value)
        except ConfigError as error:
            raise ConfigError(f"{SECTION}.headers.{name}: {error}") from None
        if not (text and text.isascii() and text.isprintable()):
            raise ConfigError(
                f"{SECTION}.headers.{name} must be printable ASCII text, a variable or a file with such text."
            )
        checked[name] = text
    return checked
