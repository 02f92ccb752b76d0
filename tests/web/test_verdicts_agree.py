"""A run's overview, its Diagnose page and the list of runs show the same verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.views.made import Made, trained
from tests.web.asking import get, state_and_app


@pytest.fixture
def made(folder: Path):
    made = Made(folder)
    yield made
    made.close()


def verdicts(made: Made, run: str) -> list[dict]:
    """That of the overview, that of the page it leads to, and that of the list."""
    state, app = state_and_app(made.folder)
    try:
        listed = next(row["verdict"] for row in get(app, "/runs")["runs"] if row["id"] == run)
        return [get(app, f"/runs/{run}/{page}")["verdict"] for page in ("overview", "findings")] + [listed]
    finally:
        state.close()


def test_a_run_that_failed_is_not_called_healthy_where_it_is_explained(made: Made) -> None:
    made.process("failed-1", status="failed", reason="KeyError: 'mixup'")
    made.log({"loss": np.linspace(2, 1, 100), "step_seconds": np.full(100, 0.01)}, run="failed-1")
    overview, explained, listed = verdicts(made, "failed-1")
    assert overview == explained == listed
    assert overview["severity"] == "critical"


def test_a_run_without_findings_has_the_same_verdict_everywhere(made: Made) -> None:
    made.process()
    trained(made)
    overview, explained, listed = verdicts(made, "mnist-0badcafe")
    assert overview == explained == listed


@pytest.mark.parametrize("count", [1, 60])
def test_a_run_that_no_agent_has_analysed_has_the_same_verdict_everywhere(made: Made, count: int) -> None:
    made.process()
    made.log({"loss": np.linspace(2, 1, count)})
    overview, explained, listed = verdicts(made, "mnist-0badcafe")
    assert overview == explained == listed
    assert overview["id"] == ("few_steps" if count == 1 else "unmeasured")


@pytest.mark.parametrize("end", [None, 100.0])
def test_a_muted_finding_is_the_verdict_of_neither(made: Made, end: float | None) -> None:
    made.process(end=end)
    losses = np.linspace(2, 1, 100)
    losses[60:] = np.nan
    made.log({"loss": losses, "step_seconds": np.full(100, 0.01)})
    made.finding("num.nonfinite", "critical", headline="The loss is NaN.")
    before = verdicts(made, "mnist-0badcafe")
    assert [verdict["headline"] for verdict in before] == ["The loss is NaN."] * 3
    state, app = state_and_app(made.folder)
    state.marks.change("mnist-0badcafe", muted=["num.nonfinite"])
    pages = [get(app, f"/runs/mnist-0badcafe/{page}")["verdict"] for page in ("overview", "findings")]
    state.close()
    assert pages[0] == pages[1]
    assert pages[0]["headline"] != "The loss is NaN."


def test_a_failed_run_is_explained_with_its_traceback_on_every_page(made: Made) -> None:
    made.process("failed-1", status="failed", reason="KeyError: 'mixup'")
    made.event(
        "console",
        50,
        text="Traceback (most recent call last):\n  File 'a'\nKeyError: 'mixup'",
        run="failed-1",
    )
    state, app = state_and_app(made.folder)
    pages = [get(app, f"/runs/failed-1/{page}") for page in ("overview", "findings", "logs")]
    state.close()
    failures = [pages[0]["ended"]["failure"], pages[1]["failure"], pages[2]["failure"]]
    assert failures[0] == failures[1] == failures[2]
    assert failures[0]["traceback"].endswith("KeyError: 'mixup'")
