"""Fills a small store with two runs whose times, ids and figures never change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from stepscope.alerts.silences import Silences
from stepscope.schema.alert import AlertDetail, Notice
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.base import OpenAlert
from stepscope.store.sqlite import SqliteStore

NS = 10**9
BEGUN_NS = 1_760_000_000 * NS
ENDED_NS = BEGUN_NS + 64 * NS
IN_A_CENTURY_NS = BEGUN_NS + 100 * 365 * 86_400 * NS
STEPS = 256
TRAINED, FAILED = "trained-5a1ad000", "failed-0badcafe"
GPU = "GPU-0001"
FACTS = {"command": ["python", "train.py"], "python": "3.12.1", "libraries": {"torch": "2.9.0"}}


def fill(folder: Path) -> None:
    """Writes both runs, with an alert that still fires, one that is over, a finding and a silence."""
    folder.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(folder / "store.sqlite")
    with store.transaction():
        store.put_process(_process(FAILED, "failed", BEGUN_NS - 60 * NS, BEGUN_NS - 50 * NS))
        _append(store, FAILED, {"loss": np.array([2.0, 1.5, np.nan])}, BEGUN_NS - 59 * NS)
        store.put_process(_process(TRAINED, "finished", BEGUN_NS, ENDED_NS))
        _append(store, TRAINED, _training(), BEGUN_NS)
        _append_machine(store)
        for event in _events():
            store.put_event(TRAINED, event)
        _add_alerts(store)
        store.put_finding(TRAINED, _finding().as_dict(), ENDED_NS)
        store.put_finding(TRAINED, replace(_finding(), id="host.sync").as_dict(), BEGUN_NS)
        store.clear_finding(TRAINED, "host.sync", ENDED_NS)
    store.close()
    times = {"now_ns": BEGUN_NS, "until_ns": IN_A_CENTURY_NS}
    Silences(folder).silence("gpu_*", "*", reason="maintenance", **times)


def _process(run_id: str, status: str, started_ns: int, ended_ns: int) -> Process:
    return Process(
        run_id=run_id,
        name=run_id.partition("-")[0],
        project="golden",
        segment="a1",
        rank=0,
        host="node1",
        pid=4242,
        role="rank",
        started_ns=started_ns,
        status=status,
        reason="ValueError: loss is NaN" if status == "failed" else "",
        exit_code=int(status == "failed"),
        ended_ns=ended_ns,
        last_ns=ended_ns,
        facts=FACTS,
    )


def _training() -> dict[str, np.ndarray]:
    """A warm-up and a decay of the learning rate; half of each step waits for data."""
    at = np.arange(STEPS)
    return {
        "loss": 2.0 - at / STEPS,
        "accuracy": at / STEPS,
        "learning_rate": np.where(at < 32, at / 32, 1.0 - (at - 32) / STEPS) / 1024,
        "batch/samples": np.full(STEPS, 32.0),
        "step_seconds": np.full(STEPS, 0.25),
        "phase/data_seconds": np.full(STEPS, 0.125),
        "phase/forward_seconds": np.full(STEPS, 0.0625),
        "phase/other_seconds": np.full(STEPS, 0.0625),
    }


def _append(store: SqliteStore, run_id: str, columns: dict[str, np.ndarray], begun_ns: int) -> None:
    values = np.array(list(columns.values())).T
    steps = np.arange(len(values), dtype=np.int64)
    source = Source(run_id, "a1", 0, "node1")
    store.append(source, list(columns), steps, begun_ns + (steps + 1) * NS // 4, values)


def _append_machine(store: SqliteStore) -> None:
    seconds = np.arange(64, dtype=np.int64)
    gpu = {"gpu/utilization_ratio": 0.5, "gpu/power_watts": 512.0, "gpu/memory_used_bytes": 2.0**34}
    host = {"cpu/utilization_ratio": 0.25, "memory/used_bytes": 2.0**35, "memory/total_bytes": 2.0**37}
    for device, figures in ((GPU, gpu), ("", host)):
        values = np.array([[value] * len(seconds) for value in figures.values()]).T
        source = Source(TRAINED, "a1", None, "node1", device, "seconds")
        store.append(source, list(figures), seconds * 0, BEGUN_NS + seconds * NS, values)


def _events() -> list[Event]:
    facts = {"device": GPU, "uuid": GPU, "index": 0, "name": "NVIDIA H100 80GB HBM3", "host": "node1"}
    params = {"params": {"model": {"layers": 12}, "seed": 17}}
    return [
        Event("device", BEGUN_NS, None, None, "a1", facts),
        Event("params", BEGUN_NS, 0, 0, "a1", params),
        Event("checkpoint", BEGUN_NS + 32 * NS, 128, 0, "a1", {"path": "step-128.pt"}, by_user=True),
    ]


def _add_alerts(store: SqliteStore) -> None:
    fields = {"step": 200, "value": 0.5, "threshold": 0.25, "key": "phase/data_seconds", "rank": 0}
    bound = OpenAlert(TRAINED, "input_bound", "warning", "It waits.", BEGUN_NS + 50 * NS, fields)
    hot = OpenAlert(TRAINED, "gpu_hot", "critical", "It is hot.", BEGUN_NS + 10 * NS, {"device": GPU})
    book = store.alert_book
    book.fire(bound)
    book.resolve(book.fire(hot), BEGUN_NS + 20 * NS)
    detail = AlertDetail("gpu_hot", "critical", "It is hot.", BEGUN_NS + 10 * NS)
    book.post(
        "webhook",
        Notice("n1", "firing", "trained", TRAINED, "golden", "node1", BEGUN_NS + 11 * NS, (detail,)),
    )
    book.delivered(book.undelivered()[0].id, BEGUN_NS + 12 * NS)


def _finding() -> Finding:
    return Finding(
        id="host.gc",
        title="Title",
        headline="Headline",
        detail="Detail",
        severity="warning",
        confidence=0.5,
        first_time=BEGUN_NS / NS,
        last_time=ENDED_NS / NS,
        share=0.25,
        first_step=0,
        last_step=STEPS - 1,
        evidence=(Evidence("label", "value", "note"),),
        chart=Chart(("step_seconds",), 0, STEPS - 1),
        remedies=(Remedy("text", "code"),),
        tries=("try",),
        estimate=Estimate(0.125, 0.25, 0.5),
    )
