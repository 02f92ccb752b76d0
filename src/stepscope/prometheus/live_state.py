"""What is served to Prometheus, in memory: live runs, runs that ended a short time ago, and machines."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from stepscope.prometheus import families
from stepscope.prometheus.machine_state import MachineState
from stepscope.prometheus.options import DEFAULT, Options
from stepscope.prometheus.run_state import RunState
from stepscope.schema.keys import EXPORTER_DEVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stepscope.exporters.base import Table
    from stepscope.schema.record import Event
    from stepscope.schema.run import Process
    from stepscope.schema.sample import DeviceFacts

MAX_RUNS = 50
"""The runs with the newest figures are served; the others are not."""
SERVED_AFTER_END_S = 600.0
"""How long a run is served after its end."""
MAX_SILENT_S = 86_400.0
"""A run without any figures for a day is not served, even if its end is not known."""

MACHINE_KEYS = frozenset((
    *families.GPU_GAUGES, *families.GPU_CLOCKS, *families.GPU_ECC_TYPES, families.GPU_ENERGY_KEY,
    *families.PCIE_DIRECTIONS, *families.HOST_GAUGES, *families.DISK_DIRECTIONS, *families.NETWORK_DIRECTIONS,
    *families.EXPORTERS,
))  # fmt: skip
"""The sampled keys that are used, with those that begin with `families.THROTTLE_KEY_START`."""


class LiveState:
    """Figures of runs and machines, written by one thread and read by scrapes; `lock` guards all of it."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.lock = threading.Lock()
        self.machine = MachineState(MACHINE_KEYS)
        self.has_figures = False
        """Whether any figures have come."""
        self.sent: Counter[tuple[str, str]] = Counter()
        """Notices by channel and result; those of forgotten runs stay in it."""
        self._runs: dict[str, RunState] = {}
        self._options: dict[str, Options] = {}
        self._now = now
        self.began_ns = self.now_ns()

    def add_run(self, run_id: str, options: Options) -> None:
        """Sets what a run wants to have served, also when it begins again: its options may be forgotten."""
        with self.lock:
            self._options[run_id] = options

    def begin(self, process: Process) -> None:
        """Takes a process of a run, or its new status."""
        with self.lock:
            run = self._runs.get(process.run_id)
            if run is None:
                if len(self._runs) >= 2 * MAX_RUNS:  # nobody scrapes
                    self._forget_old()
                options = self._options.get(process.run_id, DEFAULT)
                run = self._runs[process.run_id] = RunState(process.run_id, options)
            run.begin(process)

    def take(self, table: Table, *, is_counted: bool = True) -> None:
        """Takes rows that a rank has logged, or samples of a machine or a process.

        Rows from before the state began are not counted: they set gauges, and add to no counter.
        """
        if not len(table.steps):
            return
        with self.lock:
            self.has_figures = True
            run = self._runs.get(table.source.run_id)
            if table.source.device.startswith(EXPORTER_DEVICE):
                if run is not None:
                    run.take_exporter(table)
            elif table.source.rank is None:
                self.machine.take(table)
            elif run is not None:
                run.take(table, is_counted=is_counted)

    def take_event(self, run_id: str, event: Event) -> None:
        """Takes an event of a run."""
        with self.lock:
            run = self._runs.get(run_id)
            if run is not None:
                run.take_event(event)

    def describe(self, facts: DeviceFacts) -> None:
        """Takes the facts of a device."""
        with self.lock:
            self.machine.describe(facts.device, facts.fields)

    def set_verdicts(
        self,
        run_id: str,
        findings: Iterable[Mapping[str, Any]],
        alerts: Iterable[Mapping[str, Any]],
        notices: Iterable[Mapping[str, Any]],
    ) -> None:
        """Sets the findings, alerts and notices of a run, as the store has them."""
        with self.lock:
            run = self._runs.get(run_id)
            if run is None:
                return  # forgotten while the store was read
            run.findings = frozenset(
                (str(finding.get("id") or finding.get("problem")), str(finding.get("severity")))
                for finding in findings
                if finding.get("open")
            )
            run.alerts = frozenset(
                (str(alert["rule"]), str(alert["severity"]))
                for alert in alerts
                if alert.get("resolved_ns") is None
            )
            if run.sent_since_ns is None:
                # Those of earlier segments may have been counted before the run was forgotten.
                run.sent_since_ns = max(self.began_ns, run.segment_ns)
            sent = _delivered(notices, run.sent_since_ns)
            self.sent += sent - run.sent
            run.sent |= sent

    def served_runs(self) -> list[RunState]:
        """The runs to serve, the newest first; the caller holds the lock."""
        self._forget_old()
        named = [run for run in self._runs.values() if run.name]
        return sorted(named, key=lambda run: -run.last_ns)[:MAX_RUNS]

    def run_ids(self) -> frozenset[str]:
        """The runs that are held."""
        with self.lock:
            return frozenset(self._runs)

    def now_ns(self) -> int:
        """The current time in nanoseconds since the epoch."""
        return int(self._now() * 1e9)

    def options_in_use(self) -> list[Options]:
        """What the runs want to have served, each once; the caller holds the lock."""
        return list(dict.fromkeys(self._options.values())) or [DEFAULT]

    def _forget_old(self) -> None:
        """Removes runs that ended too long ago, and machines without new figures."""
        now_ns = self.now_ns()
        self.machine.drop_silent(now_ns)
        for run_id, run in list(self._runs.items()):
            is_over = run.ended_ns is not None and now_ns - run.ended_ns > SERVED_AFTER_END_S * 1e9
            if is_over or now_ns - run.last_ns > MAX_SILENT_S * 1e9:
                del self._runs[run_id]
                self._options.pop(run_id, None)


def _delivered(notices: Iterable[Mapping[str, Any]], since_ns: int) -> Counter[tuple[str, str]]:
    """How many notices were sent or given up since a time, by channel and result."""
    ends = {"sent_ns": "sent", "given_up_ns": "failed"}
    return Counter(
        (str(notice["channel"]), result)
        for notice in notices
        for end, result in ends.items()
        if notice.get(end) is not None and notice[end] >= since_ns
    )
