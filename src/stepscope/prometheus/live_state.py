"""What is served to Prometheus, in memory: live runs, runs that ended a short time ago, and machines."""

from __future__ import annotations

import threading
import time
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
"""A run without any figures for a day is not served, also where nobody has seen its end."""

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
        self._runs: dict[str, RunState] = {}
        self._options: dict[str, Options] = {}
        self._now = now

    def add_run(self, run_id: str, options: Options) -> None:
        """Sets what a run wants to have served, before anything of it is taken."""
        with self.lock:
            self._options[run_id] = options

    def begin(self, process: Process) -> None:
        """Takes a process of a run, or its new status."""
        with self.lock:
            self._run(process.run_id).begin(process)

    def take(self, table: Table) -> None:
        """Takes rows that a rank has logged, or samples of a machine or a process."""
        if not len(table.steps):
            return
        with self.lock:
            self.has_figures = True
            if table.source.device.startswith(EXPORTER_DEVICE):
                self._run(table.source.run_id).take_exporter(table)
            elif table.source.rank is None:
                self.machine.take(table)
            else:
                self._run(table.source.run_id).take(table)

    def take_event(self, run_id: str, event: Event) -> None:
        """Takes an event of a run."""
        with self.lock:
            self._run(run_id).take_event(event)

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
            run = self._run(run_id)
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
            run.sent = {}
            for notice in notices:
                result = _result_of(notice)
                if result is not None:
                    place = (str(notice["channel"]), result)
                    run.sent[place] = run.sent.get(place, 0) + 1

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

    def _run(self, run_id: str) -> RunState:
        run = self._runs.get(run_id)
        if run is None:
            if len(self._runs) >= 2 * MAX_RUNS:  # nobody scrapes
                self._forget_old()
            run = self._runs[run_id] = RunState(run_id, self._options.get(run_id, DEFAULT))
        return run

    def _forget_old(self) -> None:
        """Removes runs that ended too long ago, and machines that no longer answer."""
        now_ns = self.now_ns()
        self.machine.drop_silent(now_ns)
        for run_id, run in list(self._runs.items()):
            is_over = run.ended_ns is not None and now_ns - run.ended_ns > SERVED_AFTER_END_S * 1e9
            if is_over or (run.last_ns and now_ns - run.last_ns > MAX_SILENT_S * 1e9):
                del self._runs[run_id]
                self._options.pop(run_id, None)


def _result_of(notice: Mapping[str, Any]) -> str | None:
    """How the delivery of a notice ended; None while it is still tried."""
    if notice.get("sent_ns") is not None:
        return "sent"
    return "failed" if notice.get("given_up_ns") is not None else None
