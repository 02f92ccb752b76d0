"""How the exporters of a run are doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.number_format import number
from stepscope.schema.keys import (
    EXPORTER_DEVICE,
    EXPORTER_DROPPED,
    EXPORTER_EVENT,
    EXPORTER_VALUES,
    EXPORTER_WAITING,
)
from stepscope.views.json_values import clean

if TYPE_CHECKING:
    from stepscope.reading import Run


@dataclass(frozen=True)
class RunExporter:
    """How an exporter is doing, or how it was at the end of the run."""

    name: str
    is_failing: bool
    error: str
    """Why it failed last; empty if it never did."""
    exported: int
    """Values passed on."""
    dropped: int
    """Values given up."""
    waiting: int

    @property
    def text(self) -> str:
        """One line."""
        counts = [f"{_values(self.exported)} passed on"]
        counts += [f"{_values(self.dropped)} dropped"] if self.dropped else []
        counts += [f"{_values(self.waiting)} waiting"] if self.waiting else []
        state = f"failing: {self.error}" if self.is_failing else "working"
        last = f". Last failure: {self.error}" if self.error and not self.is_failing else ""
        return f"{state}; {', '.join(counts)}{last}"


def exporters_of(run: Run) -> tuple[RunExporter, ...]:
    """Returns the exporters of a run's newest segment, by name."""
    newest = run.segments[-1].id if run.segments else ""
    states = {
        str(event.fields.get("name")): event.fields
        for event in run.own_events(EXPORTER_EVENT)
        if event.segment == newest
    }
    if not states:
        return ()
    counts = {
        (summary.source.device, summary.key): summary.last or 0.0
        for summary in run.summaries((EXPORTER_VALUES, EXPORTER_DROPPED, EXPORTER_WAITING))
        if summary.source.segment == newest
    }
    return tuple(
        RunExporter(
            name=clean(name, 200),
            is_failing=state.get("state") == "failing",
            error=clean(state.get("error") or "", 400),
            exported=int(counts.get((EXPORTER_DEVICE + name, EXPORTER_VALUES), 0)),
            dropped=int(counts.get((EXPORTER_DEVICE + name, EXPORTER_DROPPED), 0)),
            waiting=int(counts.get((EXPORTER_DEVICE + name, EXPORTER_WAITING), 0)),
        )
        for name, state in sorted(states.items())
    )


def _values(count: int) -> str:
    return "1 value" if count == 1 else f"{number(count)} values"
