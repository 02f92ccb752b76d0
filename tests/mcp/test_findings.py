"""Tools put a failure first, then findings as the diagnosis does, and recommend nothing that is over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mcp")

from stepscope.schema.finding import Estimate, Finding, Remedy
from stepscope.schema.record import Event
from stepscope.store.sqlite import SqliteStore
from tests.golden.fixed_store import BEGUN_NS, NS, _append, _process
from tests.mcp.asking import answer_of

RUN = "spoiled-0badcafe"
FASTER = Finding(
    id="host.cpu_contention",
    title="Busy processor",
    headline="Other programs use the processor.",
    detail="",
    severity="warning",
    confidence=0.9,
    first_time=BEGUN_NS / NS,
    last_time=BEGUN_NS / NS + 9,
    share=0.5,
    remedies=(Remedy("Find the programs that use most processor time."),),
    estimate=Estimate(0.4, 0.5, 0.6),
)
UNTRAINED = replace(
    FASTER,
    id="opt.not_updating",
    headline="No parameter is trained.",
    severity="critical",
    share=None,
    remedies=(Remedy("Give the optimizer the parameters of the model."),),
    estimate=None,
)


def write_run(folder: Path, *findings: Finding, status: str = "finished", are_over: bool = False) -> None:
    """Writes a run with findings that its agent stored."""
    steps = 60
    folder.mkdir(parents=True)
    store = SqliteStore(folder / "store.sqlite")
    with store.transaction():
        process = _process(RUN, status, BEGUN_NS, BEGUN_NS + 60 * NS)
        store.put_process(process)
        _append(
            store,
            RUN,
            {"loss": 1 / np.arange(1, steps + 1), "step_seconds": np.full(steps, 0.25)},
            BEGUN_NS,
        )
        for finding in findings:
            store.put_finding(RUN, finding.as_dict(), BEGUN_NS + 50 * NS)
            if are_over:
                store.clear_finding(RUN, finding.key, BEGUN_NS + 55 * NS)
        if status == "failed":
            fields = {"type": "ValueError", "message": "loss is NaN", "frames": []}
            store.put_event(RUN, Event("failure", BEGUN_NS + 60 * NS, steps, 0, "a1", fields))
    store.close()


def test_what_spoils_the_result_comes_before_what_costs_time(folder: Path) -> None:
    write_run(folder, FASTER, UNTRAINED)
    changes = answer_of(folder, "recommend_changes")["changes"]
    assert [change["finding"] for change in changes] == ["opt.not_updating", "host.cpu_contention"]
    assert answer_of(folder, "explain_run")["finding"]["id"] == "opt.not_updating"


def test_of_equal_severity_the_larger_gain_comes_first(folder: Path) -> None:
    smaller = replace(FASTER, id="host.gc", share=0.1, estimate=Estimate(0.05, 0.1, 0.2))
    write_run(folder, smaller, FASTER)
    changes = answer_of(folder, "recommend_changes")["changes"]
    assert [change["finding"] for change in changes] == ["host.cpu_contention", "host.gc"]


def test_the_failure_of_a_run_comes_before_changes(folder: Path) -> None:
    write_run(folder, FASTER, status="failed")
    answer = answer_of(folder, "recommend_changes")
    assert list(answer)[:3] == ["run", "failure", "changes"]
    assert answer["failure"]["reason"] == "ValueError: loss is NaN"
    explanation = answer_of(folder, "explain_run")
    assert list(explanation)[:2] == ["run", "failure"]
    assert explanation["finding"]["id"] == "host.cpu_contention"


def test_a_finding_that_is_over_is_not_recommended_for_a_failed_run(folder: Path) -> None:
    write_run(folder, FASTER, status="failed", are_over=True)
    answer = answer_of(folder, "recommend_changes")
    assert "changes" not in answer
    assert answer["earlier_findings"] == [{"id": FASTER.id, "headline": FASTER.headline}]
    explanation = answer_of(folder, "explain_run")
    assert "finding" not in explanation
    assert explanation["earlier_findings"] == answer["earlier_findings"]
    by_id = answer_of(folder, "explain_run", finding=FASTER.id)["finding"]
    assert "not in the newest steps" in by_id["over"]
    assert by_id["changes"]
