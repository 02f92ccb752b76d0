"""Exporters that run along get what is safe, once; one that fails harms no other."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from stepscope.agent.ingest.export_queue import ExportCalls
from stepscope.agent.ingest.feeds import Exporters, Feeds
from stepscope.agent.run_settings import RunSettings
from stepscope.exporters.base import Feed, Table
from stepscope.schema.run import Process
from stepscope.schema.series import Source


class Listening(Feed):
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.broken = False
        self.closed = False

    def take(self, table: Table) -> None:
        if self.broken:
            raise OSError("the pipe is gone")
        self.heard += table.keys

    def finish(self, run_id: str, segment: str, rank: int) -> None:
        self.heard.append(f"end of {run_id} {segment} {rank}")

    def close(self) -> None:
        self.closed = True


def rows(key: str) -> Table:
    single = np.zeros(1, np.int64)
    return Table(Source("run", "s", 0, "h"), [key], single, single, np.zeros((1, 1)))


def test_rows_are_passed_on_when_they_are_stored_and_cleared_rows_never() -> None:
    listening = Listening()
    feeds = Feeds(lambda _: {"one": listening})
    feeds.add_rows(rows("lost"))
    feeds.clear()
    feeds.add_rows(rows("kept"))
    assert listening.heard == []
    feeds.deliver()
    feeds.deliver()
    assert listening.heard == ["kept"]


def test_the_end_of_a_rank_is_passed_on_after_its_rows_and_that_of_a_worker_never() -> None:
    listening = Listening()
    feeds = Feeds(lambda _: {"one": listening})
    process = Process("run", "name", "project", "s", 3, "h", 7, "rank", started_ns=1)
    feeds.add_process(process)
    feeds.deliver()
    feeds.add_process(replace(process, status="finished", ended_ns=2))
    feeds.add_process(replace(process, status="finished", ended_ns=2, role="worker"))
    feeds.add_rows(rows("last"))
    feeds.deliver()
    assert listening.heard == ["last", "end of run s 3"]


def test_an_exporter_that_fails_is_paused_for_a_minute_and_does_not_affect_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = 0.0
    broken, sound = Listening(), Listening()
    broken.broken = True
    feeds = Feeds(lambda _: {"broken": broken, "sound": sound}, now=lambda: clock)
    for key in ("first", "second"):
        feeds.add_rows(rows(key))
        feeds.deliver()
    broken.broken, clock = False, 61.0
    feeds.add_rows(rows("third"))
    feeds.deliver()
    feeds.close()
    assert sound.heard == ["first", "second", "third"]
    assert broken.heard == ["third"]
    assert caplog.text.count("The exporter broken failed, and is paused for a minute: the pipe is gone") == 1
    assert broken.closed
    assert sound.closed


def test_an_unknown_exporter_or_one_with_invalid_options_is_reported_and_left_out(
    caplog: pytest.LogCaptureFixture, tmp_path
) -> None:
    settings = RunSettings(
        exporters={
            "telegraph": {},
            "metrics_files": {"directory": str(tmp_path), "colour": 1},
            "off": {"enabled": False},
        }
    )
    with caplog.at_level(logging.WARNING):
        left_out = Exporters(lambda _: settings).for_run("run")
    assert left_out.keys() == {"telegraph", "metrics_files"}
    calls = ExportCalls("telegraph", left_out["telegraph"])
    calls.put(partial(calls.feed.take, rows("loss")), 1)
    status = calls.status()
    assert (status.state, status.exported, status.dropped) == ("failing", 0, 1)
    assert status.error.startswith("It is left out: There is no 'telegraph' in exporters")
    assert "is paused" not in caplog.text
    assert "There is no 'telegraph' in exporters; there are: " in caplog.text
    assert (
        "exporters.metrics_files has no option 'colour'; it has: directory, max_bytes, keep." in caplog.text
    )
    assert "off" not in caplog.text.replace("left out", "")
