"""Compares stepscope's figures with the bounds it must keep."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.catalogue import SUBJECT
from benchmarks.summary import Figures

REFERENCE_LINE = "json_lines"
MAPPED_JOURNAL_MB = 13
"""Three journal files of 4 MiB, the last, the current and the next: mapped pages count as resident."""


@dataclass(frozen=True)
class Bound:
    """One bound and what was measured; `measured` is None when it was not."""

    name: str
    measured: float | None
    limit: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the bound holds; None when there is no figure."""
        if self.measured is None:
            return None
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        bound = f"(bound {'≥' if self.at_least else '≤'} {self.limit:,.10g} {self.unit})"
        if self.measured is None:
            return f"{'unknown':<8}{self.name}: not measured {bound}"
        verdict = "met" if self.met else "missed"
        figure = f"{self.measured:,.3g}" if abs(self.measured) < 1000 else f"{self.measured:,.0f}"
        return f"{verdict:<8}{self.name}: {figure} {bound}"


def check(figures: Mapping[str, Figures], own: Mapping[str, float]) -> list[Bound]:
    """List every bound that this benchmark can measure."""
    return _training_thread(figures) + _data(figures) + _alone(own)


def _training_thread(figures: Mapping[str, Figures]) -> list[Bound]:
    subject = figures.get(SUBJECT, Figures())
    line = figures.get(REFERENCE_LINE, Figures()).call_p50_us
    call = subject.call_p50_us
    ratio = call / line if call is not None and line else None
    return [
        Bound("log of 10 floats, median", call, 4, "µs"),
        Bound("log of 10 floats, median over a JSON line's", ratio, 0.25, "×"),
        Bound("log of 10 floats, p99", subject.call_p99_us, 20, "µs"),
        Bound("memory over the bare script", subject.rss_mb, 40, "MB"),
    ]


def _data(figures: Mapping[str, Figures]) -> list[Bound]:
    subject = figures.get(SUBJECT, Figures())
    read_ms = None if subject.read_million_s is None else subject.read_million_s * 1000
    return [
        Bound("CPU of the process tree per million points", subject.cpu_s_per_million, 1.2, "s"),
        Bound("disk, float32 origin, 10 per row", subject.bytes_per_point, 6, "bytes per point"),
        Bound("read 1 M points, fresh process", read_ms, 60, "ms"),
        Bound("lost, trainer killed", subject.lost_trainer, 0, "steps"),
        Bound("lost, process group killed", subject.lost_group, 0, "steps"),
        Bound("lost, trainer and agent killed", subject.lost_tree, 0, "steps"),
    ]


def _alone(own: Mapping[str, float]) -> list[Bound]:
    chart = f"chart of {own.get('chart_points', 100e6) / 1e6:g} M points, fresh process"
    growth = own.get("rss_growth_mb_over_run")
    return [
        Bound("memory growth over a million calls", growth, MAPPED_JOURNAL_MB, "MB"),
        Bound("import stepscope", own.get("import_alone_ms"), 30, "ms"),
        Bound("ingest", own.get("ingest_points_per_s"), 3e6, "points/s per core", at_least=True),
        Bound(chart, own.get("chart_fresh_ms"), 50, "ms"),
        Bound("agent's CPU at ten steps a second", own.get("agent_cpu_percent"), 1, "% of a core"),
        Bound("agent's memory", own.get("agent_rss_mb"), 90, "MB"),
        Bound("agent's CPU with 50 live runs", own.get("agent_cpu_percent_50_runs"), 4, "% of a core"),
        Bound("agent's memory with 50 live runs", own.get("agent_rss_mb_50_runs"), 90, "MB"),
        Bound("monitoring of a 5 ms step, CPU", own.get("step_overhead_percent"), 0.5, "%"),
    ]
