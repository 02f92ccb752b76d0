"""The status of exporters is recorded in their runs, and shown by page, doctor and metrics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stepscope.agent.exporter_reports import EVERY_S, METRICS, ExporterReports
from stepscope.agent.ingest.feeds import Feeds
from stepscope.cli.main import main
from stepscope.exporters.base import Feed, Table
from stepscope.reading import Run, open_store
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore
from stepscope.views.run_exporters import exporters_of
from tests.web.asking import app_of, get

SOURCE = Source("run", "s", 0, "h")
ONE = np.zeros(1, np.int64)
OWN = len(METRICS)
"""The status is passed on as well, with the rows that come next."""


class Flaky(Feed):
    """Raises while it is broken."""

    is_broken = False

    def take(self, table: Table) -> None:
        if self.is_broken:
            raise ConnectionRefusedError("nobody listens on port 5000")

    def close(self) -> None:
        pass


class Exported:
    """A live run with one exporter, and a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.now, self.flaky = 0.0, Flaky()
        self.store = SqliteStore(folder / "store.sqlite")
        self.feeds = Feeds(lambda _: {"flaky": self.flaky}, now=lambda: self.now)
        self.reports = ExporterReports(self.store, self.feeds, now=lambda: self.now)
        process = Process("run", "run", "project", "s", 0, "h", 7, "rank", started_ns=1)
        with self.store.transaction():
            self.store.put_process(process)
        self.feeds.add_process(process)

    def log(self) -> None:
        self.feeds.add_rows(Table(SOURCE, ["loss"], ONE, ONE, np.zeros((1, 1))))
        self.feeds.deliver()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.reports.tick()

    def run(self) -> Run:
        (run,) = open_store(self.store.path.parent).runs()
        return run


@pytest.fixture
def exported(folder: Path) -> Exported:
    folder.mkdir(exist_ok=True)
    return Exported(folder)


def test_a_working_exporter_has_the_number_of_values_it_passed_on(exported: Exported) -> None:
    exported.log()
    exported.reports.tick()
    (exporter,) = exporters_of(exported.run())
    assert (exporter.name, exporter.is_failing, exporter.exported) == ("flaky", False, 1)
    assert exporter.text == "working; 1 value passed on"


def test_a_failure_is_recorded_with_its_reason_and_what_was_dropped(exported: Exported) -> None:
    exported.log()
    exported.reports.tick()
    exported.flaky.is_broken = True
    exported.log()
    exported.log()
    exported.wait(EVERY_S)
    (exporter,) = exporters_of(exported.run())
    assert exporter.text == (
        f"failing: nobody listens on port 5000; 1 value passed on, {2 + OWN} values dropped"
    )
    assert exported.run().series("stepscope/exporter_failing").values.tolist() == [0.0, 1.0]


def test_an_exporter_that_works_again_says_so_and_why_it_failed(exported: Exported) -> None:
    exported.flaky.is_broken = True
    exported.log()
    exported.reports.tick()
    exported.flaky.is_broken = False
    exported.now += 61.0
    exported.log()
    exported.reports.tick()
    (exporter,) = exporters_of(exported.run())
    assert not exporter.is_failing
    assert exporter.text.startswith(
        f"working; {1 + OWN} values passed on, 1 value dropped. Last failure: nobody"
    )


def test_an_exporter_that_fails_for_hours_is_one_event(exported: Exported) -> None:
    exported.flaky.is_broken = True
    for _ in range(100):
        exported.log()
        exported.wait(EVERY_S)
    assert len(exported.run().own_events("exporter")) == 1


def test_the_last_call_records_the_status_before_it_is_due(exported: Exported) -> None:
    exported.log()
    exported.reports.tick()
    exported.log()
    exported.reports.tick()
    assert exporters_of(exported.run())[0].exported == 1
    exported.reports.tick(is_last=True)
    assert exporters_of(exported.run())[0].exported == 2 + OWN


def test_a_run_without_exporters_records_nothing_of_them(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    exported = Exported(folder)
    exported.feeds = Feeds()
    ExporterReports(exported.store, exported.feeds).tick()
    assert exporters_of(exported.run()) == ()
    assert exported.run().machine_keys() == []


@pytest.mark.slow
def test_the_page_and_doctor_name_an_exporter_that_fails(
    exported: Exported, capsys: pytest.CaptureFixture[str]
) -> None:
    exported.flaky.is_broken = True
    exported.log()
    exported.reports.tick()
    folder = exported.store.path.parent
    app = app_of(folder)
    config = get(app, "/runs/run/config")
    (section,) = [section for section in config["sections"] if section["title"] == "Exporters"]
    text = "failing: nobody listens on port 5000; 0 values passed on, 1 value dropped"
    assert section["items"] == [{"label": "flaky", "value": text, "copy": False}]
    missing = get(app, "/runs/run/overview")["missing"]
    assert {"what": "Exporter flaky", "why": text} in missing
    main(["doctor", "--store", str(folder), "--json"])
    checks = json.loads(capsys.readouterr().out)
    (check,) = [check for check in checks if check["name"] == "exporter"]
    assert (check["outcome"], check["found"]) == ("note", f"flaky of the run run: {text}")
