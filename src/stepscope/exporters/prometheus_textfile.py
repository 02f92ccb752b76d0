"""Writes live runs and their machine into a file for node_exporter, where no port can be scraped."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from stepscope.errors import ConfigError
from stepscope.exporters.base import Unreachable
from stepscope.filesystem import atomic_file
from stepscope.prometheus.exposition import client_library, render
from stepscope.prometheus.live_feed import LiveFeed
from stepscope.prometheus.live_state import LiveState
from stepscope.prometheus.options import BUCKETS, checked_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepscope.exporters.base import Table

SECTION = "exporters.prometheus_textfile"
SUFFIX = ".prom"
"""node_exporter reads no other files of its folder."""
MODE = 0o644
"""node_exporter is another user."""
MIN_INTERVAL_S, MAX_INTERVAL_S = 1.0, 3600.0


class PrometheusTextfile(LiveFeed):
    """Replaces a file in the folder of node_exporter's textfile collector at an interval.

    Options: `path`, which ends with `.prom`; `interval_s`; `names`, `base_units`, `buckets` and
    `user_metrics` as in `exporters.prometheus`. The file is deleted when the last run has ended, because
    Prometheus would go on to show its figures.
    """

    is_remote: ClassVar[bool] = True  # the folder may be on a file system that is away

    def __init__(
        self,
        path: str,
        interval_s: float = 15.0,
        names: str = "both",
        *,
        base_units: bool = False,
        buckets: Sequence[float] = BUCKETS,
        user_metrics: Sequence[str] = (),
        _directory: Path = Path(),
        _store: Path | None = None,
        _now: Callable[[], float] = time.monotonic,
    ) -> None:
        if Path(path).suffix != SUFFIX:
            raise ConfigError(f"{SECTION}.path is {path!r}; it must end with {SUFFIX}.")
        if not MIN_INTERVAL_S <= interval_s <= MAX_INTERVAL_S:
            raise ConfigError(
                f"{SECTION}.interval_s is {interval_s:g}; it must be from {MIN_INTERVAL_S:g} to "
                f"{MAX_INTERVAL_S:g} seconds."
            )
        super().__init__(checked_options(names, base_units, buckets, user_metrics, SECTION), _store)
        client_library()  # raises where it is not installed
        self._path = _directory / Path(path).expanduser()
        self._interval_s, self._now = interval_s, _now
        self._figures = LiveState()
        self._newest: Table | None = None
        """The rows that were taken last: after a failure the same rows come again."""
        self._write_at = 0.0

    @property
    def _state(self) -> LiveState:
        return self._figures

    def take(self, table: Table) -> None:
        """Keeps the newest figures, and writes the file when it is time."""
        if table is not self._newest:
            self._newest = table
            super().take(table)
        if self._now() >= self._write_at:
            self._write()

    def finish(self, run_id: str, segment: str, rank: int) -> None:
        """Writes the last figures of a rank."""
        self._write()

    def close(self) -> None:
        """Deletes the file."""
        super().close()
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        text, _ = render(self._figures)
        try:
            with atomic_file(self._path, MODE) as temporary:
                temporary.write_bytes(text)
        except OSError as error:
            raise Unreachable(
                f"{self._path} cannot be written: {error.strerror}. Create its folder, or make it writable."
            ) from error
        self._write_at = self._now() + self._interval_s
