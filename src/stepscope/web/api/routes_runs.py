"""Routes on runs: the server itself, home, the list, and each page of one run."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.exceptions import HTTPException

from stepscope.errors import NotFound
from stepscope.views.compare.comparison import MAX_RUNS, Comparison, compare
from stepscope.views.logs.console_lines import Console, console_of
from stepscope.views.logs.run_failure import failure_of
from stepscope.views.overview.overview import Overview, overview_of
from stepscope.views.overview.run_findings import Findings, findings_page_of
from stepscope.views.run_config import RunConfig, config_of
from stepscope.views.runs.home import Home, home_of
from stepscope.views.runs.run_list import SORTS, RunList, filtered, sorted_rows
from stepscope.views.steps.rank_heatmap import Heatmap, heatmap_of
from stepscope.views.steps.step_explorer import StepWindow, steps_of
from stepscope.web.api.openapi import answer
from stepscope.web.api.parameters import (
    High,
    Low,
    Rank,
    RunId,
    StateOf,
    Text,
    split_keys,
)
from stepscope.web.api.responses import json_response
from stepscope.web.api.run_head import Health, Meta, RunHead, run_head_of, server_info, shared_axes

router = APIRouter(tags=["runs"])

MAX_CONFIG_KEYS = 500


@router.get("/health", response_model=answer(Health))
def health() -> Response:
    """Whether the server is up; needs no token."""
    return json_response(Health("ok"))


@router.get("/meta", response_model=answer(Meta))
def meta(state: StateOf) -> Response:
    """Version, store and state of the server."""
    with state.readers.open() as opened:
        return json_response(server_info(state, opened))


@router.get("/home", response_model=answer(Home))
def home(state: StateOf) -> Response:
    """Running runs, what needs attention, recent runs, and hosts."""
    with state.readers.open() as opened:
        return json_response(home_of(opened.runs, state.marks, state.now_ns(), state.figures))


@router.get("/runs", response_model=answer(RunList))
def runs(  # noqa: PLR0913 - the parameters of a list
    state: StateOf,
    *,
    filter: Annotated[Text, Query(description="Words and conditions, as in `status:running loss<2`.")] = "",  # noqa: A002 - its name in the address
    sort: Annotated[SORTS, Query(description="The column to sort by.")] = "started",
    descending: Annotated[bool, Query(description="Largest first.")] = True,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of runs.")] = 200,
    offset: Annotated[int, Query(ge=0, le=10_000_000, description="Runs to skip.")] = 0,
    archived: Annotated[bool, Query(description="Include archived runs.")] = False,
) -> Response:
    """A page of the list of runs; with an invalid filter, all runs and the error."""
    with state.readers.open() as opened:
        rows = state.rows(opened)
    shown = [row for row in rows if archived or not row.archived]
    matching, filter_error = filtered(shown, filter, state.now_ns())
    matching = sorted_rows(matching, sort, descending=descending)
    return json_response(
        RunList(
            total=len(matching),
            runs=tuple(matching[offset : offset + limit]),
            filter_error=filter_error,
            config_keys=tuple(sorted({name for row in rows for name in row.config})[:MAX_CONFIG_KEYS]),
            tags=tuple(sorted({tag for row in rows for tag in row.tags})),
            attention=sum(row.attention is not None for row in shown),
        )
    )


@router.get("/runs/{run_id}", response_model=answer(RunHead))
def run_head(state: StateOf, run_id: RunId) -> Response:
    """The header of a run's pages, and the cursor to follow the run from."""
    with state.readers.open() as opened, opened.reader.moment():
        return json_response(run_head_of(state, opened, opened.run(run_id)))


@router.get("/runs/{run_id}/overview", response_model=answer(Overview))
def overview(state: StateOf, run_id: RunId) -> Response:
    """One run at a glance: verdict, tiles, charts, events, alerts, environment."""
    with state.readers.open() as opened:
        return json_response(
            overview_of(
                opened.run(run_id),
                state.marks,
                state.now_ns(),
                energy=state.options.settings.energy,
                cache=state.figures,
                acknowledged=state.silences.read().acknowledged,
            )
        )


@router.get("/runs/{run_id}/steps", response_model=answer(StepWindow))
def steps(state: StateOf, run_id: RunId, low: Low = None, high: High = None, rank: Rank = None) -> Response:
    """Steps of a range and their phases, the slowest steps, and a histogram of step time."""
    with state.readers.open() as opened:
        return json_response(steps_of(opened.run(run_id), low, high, rank))


@router.get("/runs/{run_id}/heatmap", response_model=answer(Heatmap))
def heatmap(
    state: StateOf,
    run_id: RunId,
    key: Annotated[str, Query(min_length=1, max_length=1000, description="Key to draw.")] = "step_seconds",
    low: Low = None,
    high: High = None,
    columns: Annotated[int, Query(ge=1, le=2000, description="Maximum number of columns.")] = 200,
) -> Response:
    """The values of a key by rank and step."""
    with state.readers.open() as opened:
        return json_response(heatmap_of(opened.run(run_id), key, low, high, columns))


@router.get("/runs/{run_id}/findings", response_model=answer(Findings))
def run_findings(state: StateOf, run_id: RunId) -> Response:
    """The findings of a run with evidence and advice, checks that passed, and the history of its project."""
    with state.readers.open() as opened:
        run, runs = opened.run(run_id), opened.runs.runs()
        return json_response(findings_page_of(run, runs, state.marks, state.now_ns(), state.figures))


@router.get("/runs/{run_id}/logs", response_model=answer(Console))
def logs(
    state: StateOf,
    run_id: RunId,
    search: Annotated[Text, Query(description="Only lines with this text.")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000, description="Maximum number of lines, newest kept.")] = 500,
) -> Response:
    """The last lines a run printed."""
    with state.readers.open() as opened:
        run = opened.run(run_id)
        return json_response(console_of(run, search, limit, failure=failure_of(run)))


@router.get("/runs/{run_id}/config", response_model=answer(RunConfig))
def config(state: StateOf, run_id: RunId) -> Response:
    """What a run was started with: configuration, command, versions, code."""
    with state.readers.open() as opened:
        return json_response(config_of(opened.run(run_id)))


@router.get("/compare", response_model=answer(Comparison))
def compare_runs(
    state: StateOf,
    runs: Annotated[str, Query(min_length=1, max_length=10_000, description="Ids separated by commas.")],
    baseline: Annotated[
        str | None, Query(max_length=300, description="The run others are compared with.")
    ] = None,
    preset: Annotated[Literal["all", "performance", "quality"], Query(description="Which figures.")] = "all",
    group: Annotated[
        str | None, Query(max_length=300, description="The configuration entry to group runs by.")
    ] = None,
    warm_up: Annotated[
        Literal["excluded", "included"], Query(description="Whether the first steps count.")
    ] = "excluded",
) -> Response:
    """Several runs side by side: figures against a baseline, groups, configuration, verdicts."""
    ids = split_keys([runs])
    if not 1 <= len(ids) <= MAX_RUNS:
        raise HTTPException(400, f"runs names {len(ids)} runs; 1 to {MAX_RUNS} can be compared.")
    with state.readers.open() as opened:
        # A run may be named twice, by its id and by its name.
        compared_runs = list({run.id: run for run in map(opened.run, ids)}.values())
        baseline_run = opened.run(baseline) if baseline else compared_runs[0]
        if all(run.id != baseline_run.id for run in compared_runs):
            raise NotFound(f"The baseline {baseline!r} is none of the runs compared.")
        return json_response(
            compare(
                compared_runs,
                baseline_run.id,
                preset,
                group_by=group or None,
                with_warm_up=warm_up == "included",
                marks=state.marks,
                now_ns=state.now_ns(),
                cache=state.figures,
                axes=shared_axes(opened, compared_runs),
            )
        )
