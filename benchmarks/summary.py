"""Turns the samples of all rounds into one line of figures per peer."""

import statistics
from dataclasses import dataclass, fields

from benchmarks.measurements import KILLS
from benchmarks.session import Sample, Session
from benchmarks.workload import KEYS_PER_ROW

READ_REFERENCE_POINTS = 1_000_000
MIN_RISE = 1.2


@dataclass(frozen=True)
class Figures:
    """What one peer costs; None where it was not measured."""

    call_p50_us: float | None = None
    call_p99_us: float | None = None
    call_max_us: float | None = None
    loop_slowdown: float | None = None
    points_per_s: float | None = None
    cpu_s_per_million: float | None = None
    cpu_s_per_run: float | None = None
    bytes_per_point: float | None = None
    rss_mb: float | None = None
    rss_growth_mb: float | None = None
    read_million_s: float | None = None
    read_points: int | None = None
    read_exact: str | None = None
    lost_trainer: int | None = None
    lost_group: int | None = None
    lost_tree: int | None = None
    import_ms: float | None = None


FIGURES = tuple(field.name for field in fields(Figures))


def summarise(session: Session, bare: Session) -> Figures:
    """Take medians over the rounds; of lost steps the worst, of exactness the last."""
    figures: dict[str, float | int | str | None] = {}
    if paced := session.samples.get("paced"):
        figures |= {
            "call_p50_us": _median(paced, "p50_us"),
            "call_p99_us": _median(paced, "p99_us"),
            "call_max_us": _median(paced, "max_us"),
            "loop_slowdown": _median(paced, "slowdown"),
            "rss_mb": _median(paced, "rss_mb"),
            "rss_growth_mb": _median(paced, "rss_growth_mb"),
        }
    if flat := session.samples.get("flat"):
        figures |= _flat(flat, bare.samples["flat"])
    if read := session.samples.get("read"):
        points = read[-1]["points"]
        figures["read_million_s"] = _median(read, "read_s") * READ_REFERENCE_POINTS / points
        figures["read_points"] = points
        figures["read_exact"] = read[-1]["exact"]
    for kind in KILLS:
        if crash := session.samples.get(f"crash_{kind}"):
            figures[f"lost_{kind}"] = max(sample["lost"] for sample in crash)
    if imports := session.samples.get("import"):
        figures["import_ms"] = _median(imports, "import_ms")
    return Figures(**figures)  # type: ignore[arg-type]


def _flat(samples: list[Sample], bare: list[Sample]) -> dict[str, float | None]:
    loop_s = statistics.median(map(_cpu_s_per_million, bare))
    cpu_s = statistics.median(map(_cpu_s_per_million, samples)) - loop_s
    return {
        "points_per_s": statistics.median(_points(s) / s["wall_s"] for s in samples),
        "cpu_s_per_million": cpu_s if all(map(_is_resolved, samples)) else None,
        "cpu_s_per_run": _median(samples, "fixed_cpu_s"),
        "bytes_per_point": statistics.median(
            (s["disk_bytes"] - s["fixed_disk_bytes"]) / _points(s) for s in samples
        ),
    }


def _is_resolved(sample: Sample) -> bool:
    """Whether logging took enough CPU to stand out from the start and end of the run."""
    return bool(sample["cpu_s"] > sample["fixed_cpu_s"] * MIN_RISE)


def _points(sample: Sample) -> int:
    rows: int = sample["rows"]
    return rows * KEYS_PER_ROW


def _cpu_s_per_million(sample: Sample) -> float:
    """CPU of the tree beyond that of a run with a single row."""
    return float((sample["cpu_s"] - sample["fixed_cpu_s"]) / _points(sample) * 1e6)


def _median(samples: list[Sample], name: str) -> float:
    values: list[float] = [sample[name] for sample in samples]
    return statistics.median(values)
