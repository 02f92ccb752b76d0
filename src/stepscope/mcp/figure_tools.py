"""Tools on figures: the metrics of a run, series in buckets, comparisons and the gate."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from stepscope.errors import NotFound, StepscopeError
from stepscope.mcp.answers import (
    MAX_BYTES,
    MORE_DETAIL,
    Answer,
    NextCall,
    one_line,
    quoted,
    rounded,
    size_of,
    with_rows,
)
from stepscope.mcp.parameters import BaselineName, Detail, Limit, RunName, Search, Step  # noqa: TC001 - the schema of the tools reads it
from stepscope.mcp.watched_store import handles_of_keys, similar
from stepscope.views.compare.comparison import MAX_RUNS, compare
from stepscope.views.compare.gate import gate
from stepscope.views.metrics.catalogue import catalogue_of
from stepscope.web.api.series import SeriesQuery, SeriesReader, places_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stepscope.mcp.watched_store import WatchedStore
    from stepscope.store.base import Counter
    from stepscope.views.compare.comparison import Comparison
    from stepscope.web.api.series import Part, Place

METRICS = 12
"""How many metrics a list has where no number is given."""
BUCKETS = 12
MAX_BUCKETS = 400
MAX_KEYS = 8
SERIES_BYTES = 300
"""What an answer with series needs beside them."""
COMPARISON_BYTES = 400
"""What an answer with figures of several runs needs beside them."""
MIN_COMPARED = 2
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
            catalogue = catalogue_of(chosen).keys
        handles = handles_of_keys(key.key for key in catalogue)
        keys = [key for key in catalogue if search.casefold() in f"{key.key}\n{handles[key.key]}".casefold()]
        rows = [
            {
                "key": handles[key.key],
                "unit": key.unit,
                "points": key.points,
                "last": rounded(key.last),
                "nan_or_infinite": key.nonfinite or None,
                "meaning": key.help,
            }
            for key in keys[: limit or METRICS]
        ]
        body = {"run": handle, "metrics": [], "matching": len(keys)}
        if keys:
            arguments = {"run": handle, "keys": [handles[keys[0].key]]}
            call = NextCall("read_series", arguments, "Shows how it changes.")
        elif search:
            call = NextCall("list_metrics", {"run": handle}, "Lists all metrics of the run.")
        else:
            call = NextCall("read_logs", {"run": handle}, "Shows what the run printed.")
        detail: Detail = "short" if limit is None else "full"
        answer, _ = with_rows(Answer(body, call, detail, "limit=1000"), "metrics", rows, len(keys))
        return answer

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
        if from_step is not None and to_step is not None and from_step > to_step:
            raise StepscopeError(f"from_step is {from_step}, after to_step, which is {to_step}. Swap them.")
        detail: Detail = "short" if buckets is None else "full"
        with self._store.open() as called, called.opened.reader.moment():
            chosen = called.run(run)
            handle = self._store.handle(chosen, called)
            reader = called.opened.reader
            counters = reader.counters(chosen.id)
            handles = called.key_handles(chosen)
            known = [_key_of(key, handles, handle) for key in keys]
            count = buckets or BUCKETS
            while True:  # fewer buckets rather than the beginning of many
                query = SeriesQuery("step", count, from_step, to_step, rank, merge=True)
                places = places_of(counters, known, query)
                _check_ranks(places, known, counters, rank)
                parts = SeriesReader(chosen, reader, query).parts(places)
                series = [_series(part, handles[part.key]) for part in parts]
                if count <= 2 or size_of(series) <= MAX_BYTES[detail] - SERIES_BYTES:
                    break
                count = max(count // 2, 2)
        call = NextCall("explain_run", {"run": handle}, "Says what the figures mean.")
        return Answer({"run": handle, "series": series}, call, detail, f"buckets={MAX_BUCKETS}")

    def compare_runs(
        self,
        runs: Annotated[
            list[Annotated[str, Field(max_length=300)]],
            Field(min_length=2, max_length=MAX_RUNS, description="Names or ids of runs."),
        ],
        baseline: BaselineName = "",
        detail: Detail = "short",
    ) -> Answer:
        """Compares runs with a baseline, by default the first run: figures, changes, settings that differ."""
        with self._store.open() as called:
            chosen = {run.id: run for run in map(called.run, runs)}
            base = called.run(baseline) if baseline else next(iter(chosen.values()))
            if base.id not in chosen:
                raise NotFound(f"The baseline {quoted(baseline)} is none of the runs to compare.")
            handles = {run.id: self._store.handle(run, called) for run in chosen.values()}
            state = self._store.state
            comparison = compare(
                list(chosen.values()),
                base.id,
                marks=called.marks,
                now_ns=state.now_ns(),
                cache=state.figures,
            )
        order = [base.id, *(run for run in chosen if run != base.id)]
        shown = _runs_that_fit(comparison, order, handles, MAX_BYTES[detail] - COMPARISON_BYTES)
        body = {
            **_comparison_body(comparison, shown, handles),
            "runs_left_out": (len(order) - len(shown)) or None,
        }
        call = NextCall(
            "explain_run", {"run": handles[order[min(len(order), 2) - 1]]}, "Says why it differs."
        )
        settings = _different_settings(comparison, shown, handles)
        answer = Answer(body, call, detail, MORE_DETAIL)
        if len(shown) < len(order) and detail == "short":
            answer = replace(answer, body={**body, "shortened": f"Give {MORE_DETAIL} for more runs."})
        answer, _ = with_rows(answer, "different_settings", settings, len(settings))
        return answer

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
                raise StepscopeError(
                    f"{quoted(handle)} is its own baseline; name another run as the baseline."
                )
            result = gate(current, chosen, max_step_time_regression_percent / PERCENT)
            others = [self._store.handle(base, called) for base in chosen]
        call = (
            NextCall("explain_run", {"run": handle}, "Says why it is slower.")
            if result.result == "failed"
            else NextCall("compare_runs", {"runs": [others[0], handle]}, "Shows the other figures.")
        )
        return Answer(asdict(result), call, detail, MORE_DETAIL)


def _key_of(name: str, handles: Mapping[str, str], run: str) -> str:
    """Returns the metric that a name in a call stands for: a key, or what answers call one."""
    if name in handles:
        return name
    keys = [key for key, handle in handles.items() if handle == name]
    if not keys:
        raise NotFound(
            f"The run {quoted(run)} has no metric {quoted(name)}; {similar(name, handles.values())}"
        )
    return keys[0]


def _check_ranks(
    places: Iterable[Place], keys: Iterable[str], counters: Iterable[Counter], rank: int | None
) -> None:
    """Raises NotFound if a metric has no points of a rank."""
    missing = next((key for key in keys if key not in {place.key for place in places}), None)
    if missing is None:
        return
    ranks = {counter.source.rank for counter in counters if counter.key == missing}
    listed = ", ".join(map(str, sorted(known for known in ranks if known is not None)))
    which = f"it has: {listed}." if listed else "it is of the whole machine. Omit `rank`."
    raise NotFound(f"The metric {quoted(missing)} has no rank {rank}; {which}")


def _runs_that_fit(
    comparison: Comparison, order: Sequence[str], handles: Mapping[str, str], most_bytes: int
) -> Sequence[str]:
    """Returns the first runs whose figures and verdicts fit into an answer, at least the first two."""
    for count in range(len(order), MIN_COMPARED, -1):
        if size_of(_comparison_body(comparison, order[:count], handles)) <= most_bytes:
            return order[:count]
    return order[:MIN_COMPARED]


def _comparison_body(
    comparison: Comparison, shown: Sequence[str], handles: Mapping[str, str]
) -> dict[str, Any]:
    """Returns figures and verdicts of some runs, of which the first is the baseline."""
    verdicts = dict(zip((row.id for row in comparison.runs), comparison.verdicts, strict=True))
    return {
        "baseline": handles[shown[0]],
        "figures": [
            {
                "figure": figure.name,
                **{
                    handles[cell.run]: f"{cell.text} ({cell.delta_text})" if cell.delta_text else cell.text
                    for cell in figure.cells
                    if cell.run in shown
                },
            }
            for figure in comparison.figures
        ],
        "verdicts": {handles[run]: one_line(verdicts[run].headline) for run in shown},
    }


def _different_settings(
    comparison: Comparison, shown: Sequence[str], handles: Mapping[str, str]
) -> list[dict[str, Any]]:
    places = {row.id: place for place, row in enumerate(comparison.runs)}
    return [
        {"setting": line.key, **{handles[run]: line.values[places[run]] for run in shown}}
        for line in comparison.config
        if not line.same
    ]


def _series(part: Part, handle: str) -> dict[str, Any]:
    """Returns the columns of a series; a bucket without a finite value has None."""
    starts, counts, minima, maxima, means, _last, nonfinite, _times = (
        [rounded(value) for value in column.tolist()] for column in part.columns()
    )
    is_exact = part.described(with_columns=False).exact
    return {
        "key": handle,
        "points": part.points,
        "nothing_to_show": None if len(part.buckets) else "The metric has no point in the steps asked for.",
        "repeated_by_a_resume": part.superseded or None,
        "first_step": [None if start is None else int(start) for start in part.columns()[0].tolist()],
        "value" if is_exact else "mean": means,
        "min": None if is_exact else minima,
        "max": None if is_exact else maxima,
        "nan_or_infinite": nonfinite if any(nonfinite) else None,
        "bucket_points": None if is_exact or len(set(counts[:-1])) <= 1 else counts,
        "buckets": len(starts),
    }
