"""Tools on figures: the metrics of a run, series in buckets, comparisons and the gate."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from stepscope.errors import NotFound, StepscopeError
from stepscope.mcp.answers import MAX_BYTES, Answer, NextCall, rounded, size_of
from stepscope.mcp.parameters import Detail, Limit, RunName, Search, Step  # noqa: TC001 - the schema of the tools reads it
from stepscope.mcp.watched_store import similar
from stepscope.views.compare.comparison import MAX_RUNS, compare
from stepscope.views.compare.gate import gate
from stepscope.views.metrics.catalogue import catalogue_of
from stepscope.web.api.series import SeriesQuery, SeriesReader, places_of

if TYPE_CHECKING:
    from stepscope.mcp.watched_store import WatchedStore
    from stepscope.web.api.series import Part

METRICS = 12
"""How many metrics a list has where no number is given."""
BUCKETS = 12
MAX_BUCKETS = 400
MAX_KEYS = 8
SERIES_BYTES = 300
"""What an answer with series needs beside them."""
PERCENT = 100.0


class FigureTools:
    """Answers with the figures of runs."""

    def __init__(self, store: WatchedStore) -> None:
        self._store = store

    def list_metrics(self, run: RunName = "", search: Search = "", limit: Limit = None) -> Answer:
        """Lists the metrics that a run has, with unit, number of points, last value and meaning."""
        with self._store.open() as called:
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
            keys = [key for key in catalogue_of(chosen).keys if search.casefold() in key.key.casefold()]
        body = {
            "run": handle,
            "metrics": [
                {
                    "key": key.key,
                    "unit": key.unit,
                    "points": key.points,
                    "last": rounded(key.last),
                    "nan_or_infinite": key.nonfinite or None,
                    "meaning": key.help,
                }
                for key in keys[: limit or METRICS]
            ],
            "matching": len(keys),
        }
        detail: Detail = "short" if limit is None else "full"
        if not keys:
            call = NextCall("read_logs", {"run": handle}, "Shows what the run printed.")
            if search:
                call = NextCall("list_metrics", {"run": handle}, "Lists all metrics of the run.")
            return Answer(body, call, detail)
        call = NextCall("read_series", {"run": handle, "keys": [keys[0].key]}, "Shows how it changes.")
        return Answer(body, call, detail)

    def read_series(
        self,
        keys: Annotated[
            list[Annotated[str, Field(max_length=1000)]],
            Field(min_length=1, max_length=MAX_KEYS, description="Metrics, as list_metrics names them."),
        ],
        run: RunName = "",
        from_step: Step = None,
        to_step: Step = None,
        rank: Annotated[
            int | None, Field(ge=0, description="Only this rank; all ranks together if omitted.")
        ] = None,
        buckets: Annotated[
            int | None,
            Field(ge=1, le=MAX_BUCKETS, description="Buckets of each metric; a number allows up to 40 kB."),
        ] = None,
    ) -> Answer:
        """Shows metrics by step in buckets: first step, mean, minimum and maximum of each bucket."""
        detail: Detail = "short" if buckets is None else "full"
        with self._store.open() as called, called.opened.reader.moment():
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
            reader = called.opened.reader
            counters = reader.counters(chosen.id)
            known = sorted({counter.key for counter in counters})
            for key in keys:
                if key not in known:
                    raise NotFound(f"The run {handle!r} has no metric {key!r}; {similar(key, known)}")
            count = buckets or BUCKETS
            while True:  # fewer buckets rather than the beginning of many
                query = SeriesQuery("step", count, from_step, to_step, rank, merge=True)
                parts = SeriesReader(chosen, reader, query).parts(places_of(counters, keys, query))
                series = [_series(part) for part in parts]
                if count <= 2 or size_of(series) <= MAX_BYTES[detail] - SERIES_BYTES:
                    break
                count = max(count // 2, 2)
        body = {"run": handle, "series": series}
        return Answer(body, NextCall("explain_run", {"run": handle}, "Says what the figures mean."), detail)

    def compare_runs(
        self,
        runs: Annotated[
            list[Annotated[str, Field(max_length=300)]],
            Field(min_length=2, max_length=MAX_RUNS, description="Names or ids of runs."),
        ],
        baseline: RunName = "",
        detail: Detail = "short",
    ) -> Answer:
        """Compares runs with a baseline, by default the first run: figures, changes, settings that differ."""
        with self._store.open() as called:
            chosen = {run.id: run for run in map(called.run, runs)}
            base = called.run(baseline) if baseline else next(iter(chosen.values()))
            if base.id not in chosen:
                raise NotFound(f"The baseline {baseline!r} is none of the runs to compare.")
            handles = {run.id: self._store.handle(run, called) for run in chosen.values()}
            state = self._store.state
            comparison = compare(
                list(chosen.values()),
                base.id,
                marks=called.marks,
                now_ns=state.now_ns(),
                cache=state.figures,
            )
        differences = [line for line in comparison.config if not line.same]
        order = list(chosen)
        body = {
            "baseline": handles[base.id],
            "figures": [
                {
                    "figure": figure.name,
                    **{handles[cell.run]: _cell(cell.text, cell.delta_text) for cell in figure.cells},
                }
                for figure in comparison.figures
            ],
            "different_settings": [
                {
                    "setting": line.key,
                    **{handles[run]: value for run, value in zip(order, line.values, strict=True)},
                }
                for line in differences
            ],
            "verdicts": {
                handles[run]: verdict.headline
                for run, verdict in zip(order, comparison.verdicts, strict=True)
            },
        }
        other = next((run for run in order if run != base.id), base.id)
        return Answer(body, NextCall("explain_run", {"run": handles[other]}, "Says why it differs."), detail)

    def check_gate(
        self,
        baselines: Annotated[
            list[Annotated[str, Field(max_length=300)]],
            Field(min_length=1, max_length=MAX_RUNS, description="Names or ids of the runs to compare with."),
        ],
        run: RunName = "",
        max_step_time_regression_percent: Annotated[
            float, Field(ge=0, le=1e6, allow_inf_nan=False, description="How much longer steps may take.")
        ] = 5.0,
        detail: Detail = "short",
    ) -> Answer:
        """Says whether a run is slower than its baselines by more than a limit, or inconclusive."""
        with self._store.open() as called:
            current = called.run(run)
            handle = self._store.handle(current, called)
            chosen = list({base.id: base for base in map(called.run, baselines)}.values())
            if any(base.id == current.id for base in chosen):
                raise StepscopeError(f"{handle!r} is its own baseline; name another run as the baseline.")
            result = gate(current, chosen, max_step_time_regression_percent / PERCENT)
            others = [self._store.handle(base, called) for base in chosen]
        call = (
            NextCall("explain_run", {"run": handle}, "Says why it is slower.")
            if result.result == "failed"
            else NextCall("compare_runs", {"runs": [others[0], handle]}, "Shows the other figures.")
        )
        return Answer(asdict(result), call, detail)


def _cell(text: str, change: str) -> str:
    return f"{text} ({change})" if change else text


def _series(part: Part) -> dict[str, Any]:
    """Returns the columns of a series; a bucket without a finite value has None."""
    starts, counts, minima, maxima, means, _last, nonfinite, _times = (
        [rounded(value) for value in column.tolist()] for column in part.columns()
    )
    is_exact = part.described(with_columns=False).exact
    return {
        "key": part.key,
        "points": part.points,
        "repeated_by_a_resume": part.superseded or None,
        "first_step": [None if start is None else int(start) for start in part.columns()[0].tolist()],
        "value" if is_exact else "mean": means,
        "min": None if is_exact else minima,
        "max": None if is_exact else maxima,
        "nan_or_infinite": nonfinite if any(nonfinite) else None,
        "bucket_points": None if is_exact or len(set(counts[:-1])) <= 1 else counts,
        "buckets": len(starts),
    }
