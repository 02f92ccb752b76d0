"""Pauses of the garbage collector are counted, and a long one is reported with its step."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from stepscope.steps.evidence.garbage_pauses import GarbagePauses


class Collector:
    """A collector whose pauses take as long as a test says."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.callbacks: list[Any] = []
        self.noticed: list[GarbagePauses] = []
        self.listening = GarbagePauses(self.noticed.append, lambda: self.now_ns, self.callbacks)

    def collect(self, generation: int, took_ns: int) -> None:
        self.callbacks[0]("start", {"generation": generation})
        self.now_ns += took_ns
        self.callbacks[0]("stop", {"generation": generation, "collected": 0, "uncollectable": 0})


def test_pauses_are_added_up_between_readings() -> None:
    collector = Collector()
    collector.collect(0, 1_000)
    collector.collect(2, 30_000_000)
    figures = collector.listening.read(1)
    assert figures["gc/pause_seconds"] == pytest.approx(0.030001)
    assert figures["gc/longest_pause_seconds"] == pytest.approx(0.03)
    assert (figures["gc/collections"], figures["gc/full_collections"]) == (2.0, 1.0)
    collector.collect(1, 5_000)
    figures = collector.listening.read(1)
    assert (figures["gc/collections"], figures["gc/full_collections"]) == (1.0, 0.0)


def test_a_long_pause_is_news_and_a_short_one_is_not() -> None:
    collector = Collector()
    collector.collect(0, 20_000)
    assert collector.noticed == []
    collector.collect(2, 3_000_000)
    assert collector.noticed == [collector.listening]


def test_a_collection_that_waits_for_a_processor_is_no_pause() -> None:
    callbacks: list[Any] = []
    listening = GarbagePauses(lambda _: None, callbacks=callbacks)
    callbacks[0]("start", {"generation": 0})
    threading.Event().wait(0.05)  # as long as other programs keep the thread from running
    callbacks[0]("stop", {"generation": 0})
    assert listening.read(1)["gc/pause_seconds"] < 0.04


@pytest.mark.slow
def test_collections_are_counted_until_it_is_closed() -> None:
    before = len(gc.callbacks)
    listening = GarbagePauses(lambda _: None)
    listening.read(1)
    gc.collect()
    figures = listening.read(1)
    assert figures["gc/full_collections"] >= 1
    assert 0 < figures["gc/pause_seconds"] < 60
    listening.close()
    assert len(gc.callbacks) == before
    gc.collect()
    assert listening.read(1)["gc/collections"] == 0


def test_closing_twice_leaves_the_callbacks_of_others_alone() -> None:
    others: list[Any] = [print]
    listening = GarbagePauses(lambda _: None, callbacks=others)
    listening.close()
    listening.close()
    assert others == [print]
