"""The starts of runs that are copied: their processes, their hyper-parameters, and how they ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stepscope.schema.run import FAILED, Process, Status, outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepscope.schema.record import Event

PARAMS = "params"
"""The kind of the events that hold hyper-parameters, and the name of their field."""

MAX_STARTS = 50
"""How many starts are remembered; beyond it the oldest that have ended are forgotten."""


@dataclass
class RunStart:
    """One start of a run. Other programs get each start as a run of its own.

    A resumed run goes back to earlier steps: in one run, their charts would draw a zigzag.
    """

    run_id: str
    segment: str
    processes: dict[tuple[int, int, str], Process] = field(default_factory=dict)
    params_of_rank: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the run; its id while no process is known."""
        return next((process.name for process in self._deciding()), self.run_id)

    @property
    def project(self) -> str:
        """The project of the run."""
        return next((process.project for process in self._deciding()), "")

    @property
    def host(self) -> str:
        """The host of its first process."""
        return next((process.host for process in self._deciding()), "")

    @property
    def started_ns(self) -> int:
        """When its first process started; 0 while none is known."""
        return min((process.started_ns for process in self.processes.values()), default=0)

    @property
    def ended_ns(self) -> int | None:
        """When its last process ended; None while one is live."""
        ends = [process.ended_ns for process in self._deciding()]
        return None if not ends or None in ends else max(end or 0 for end in ends)

    @property
    def is_over(self) -> bool:
        """Whether all its ranks have ended; without ranks, all its processes."""
        return self.ended_ns is not None

    @property
    def has_ranks(self) -> bool:
        """Whether a process of it trains; without one, only the machine or a command was watched."""
        return any(process.role == "rank" for process in self.processes.values())

    @property
    def outcome(self) -> tuple[Status, str]:
        """Its status, and the reason."""
        return outcome_of(self._deciding()) if self.processes else ("running", "")

    @property
    def exit_code(self) -> int:
        """The exit code of the process that decided the status; 0 for success, never 0 for a failure."""
        status, _ = self.outcome
        if status not in FAILED:
            return 0
        codes = [process.exit_code for process in self._deciding() if process.status == status]
        return next((code for code in codes if code), 1)

    @property
    def params(self) -> dict[str, Any]:
        """Its hyper-parameters, nested as they were given; where ranks differ, those of the lowest."""
        merged: dict[str, Any] = {}
        for rank in sorted(self.params_of_rank, reverse=True):
            _merge_into(merged, self.params_of_rank[rank])
        return merged

    def add_event(self, event: Event) -> None:
        """Takes hyper-parameters from an event; a later value replaces an earlier one."""
        params = event.fields.get(PARAMS)
        if event.kind == PARAMS and not event.by_user and isinstance(params, dict):
            _merge_into(self.params_of_rank.setdefault(event.rank or 0, {}), params)

    def _deciding(self) -> list[Process]:
        processes = sorted(self.processes.values(), key=lambda process: (process.rank, process.started_ns))
        for role in ("rank", "launcher", "machine"):
            deciding = [process for process in processes if process.role == role]
            if deciding:
                return deciding
        return processes


class RunStarts:
    """All starts that one exporter copies."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], RunStart] = {}

    def __iter__(self) -> Iterator[RunStart]:
        return iter(list(self._starts.values()))

    def __contains__(self, key: object) -> bool:
        return key in self._starts

    def of(self, run_id: str, segment: str) -> RunStart:
        """The start of a run with this segment."""
        key = (run_id, segment)
        if key not in self._starts:
            self._forget_ended()
            self._starts[key] = RunStart(run_id, segment)
        return self._starts[key]

    def add(self, process: Process) -> RunStart:
        """Takes a process with its newest status; returns its start."""
        start = self.of(process.run_id, process.segment)
        start.processes[process.rank, process.pid, process.role] = process
        return start

    def _forget_ended(self) -> None:
        ended = [key for key, start in self._starts.items() if start.is_over]
        for key in ended[: max(0, len(self._starts) - MAX_STARTS)]:
            del self._starts[key]


def flat(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Hyper-parameters without nesting: `{"optimizer": {"lr": 1}}` becomes `{"optimizer.lr": 1}`."""
    flattened: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, dict) and value:
            flattened.update(flat(value, f"{prefix}{name}."))
        else:
            flattened[f"{prefix}{name}"] = value
    return flattened


def _merge_into(merged: dict[str, Any], params: Mapping[str, Any]) -> None:
    for name, value in params.items():
        previous = merged.get(name)
        if isinstance(previous, dict) and isinstance(value, dict):
            _merge_into(previous, value)
        else:
            merged[name] = _copied(value)


def _copied(value: Any) -> Any:
    return {name: _copied(part) for name, part in value.items()} if isinstance(value, dict) else value
