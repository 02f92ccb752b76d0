"""The diagnosis page of a run that has similar earlier runs in its project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.views.history.project import WAIT, Project
from tests.views.made import Made

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Made(tmp_path / "store")
    yield Project(made)
    made.store.close()


@pytest.mark.parametrize("phone", [False, True])
def test_a_run_is_compared_with_similar_earlier_runs(project, serve, open_page, phone):
    for _ in range(3):
        project.checked(project.train(0.05, workers=0, waits=True), WAIT)
    for _ in range(3):
        project.checked(project.train(0.03))
    run = project.train(0.09, lr=0.1)
    page = open_page(serve(project.made.folder), f"/run/{run}/diagnose", phone=phone)
    card = page.get_by_test_id("earlier-runs")
    card.get_by_text("6 similar runs took 29.9 to 50 ms (newest: resnet-6): they differ too much").wait_for()
    card.get_by_text("Helped: input.exposed_wait after loader.num_workers 0 -> 4").wait_for()
    card.get_by_text("6 similar runs", exact=True).click()
    card.get_by_role("link", name="resnet-6").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    card.get_by_role("link", name="resnet-6").click()
    page.wait_for_url("**/run/resnet-6-*")


def test_the_first_run_of_a_project_has_no_earlier_runs_to_show(project, serve, open_page):
    page = open_page(serve(project.made.folder), f"/run/{project.train()}/diagnose")
    page.get_by_test_id("findings").wait_for()
    assert page.get_by_test_id("earlier-runs").count() == 0
