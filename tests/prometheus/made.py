"""A state with every figure that is served, from rows as an agent hands them over, and its text read back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_plain

from stepscope.exporters.base import Table
from stepscope.prometheus.exposition import render
from stepscope.prometheus.live_state import LiveState
from stepscope.prometheus.options import Options
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.sample import DeviceFacts, Sample
from stepscope.schema.series import Source
from tests.devices.scripted_samples import EIGHT

NOW_S = 1_800_000_000.0
NS = 10**9
RUN, SEGMENT, HOST = "mnist-0badcafe", "s1", "node1"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"

GPU = next(reading.device for reading in EIGHT if isinstance(reading, DeviceFacts))
"""The first of eight GPUs."""

Labels = frozenset[tuple[str, str]]


def process(rank: int = 0, run_id: str = RUN, **fields: object) -> Process:
    """A live process of a run."""
    known = {
        "run_id": run_id,
        "name": "mnist",
        "project": "demo",
        "segment": SEGMENT,
        "rank": rank,
        "host": HOST,
        "pid": 100 + rank,
        "role": "rank",
        "started_ns": int((NOW_S - 600) * NS),
        "last_ns": int(NOW_S * NS),
        "facts": {"libraries": {"torch": "2.9"}, "world_size": 2, "total_steps": 100},
    }
    return Process(**{**known, **fields})


def rows(
    columns: Mapping[str, list[float]],
    rank: int | None = 0,
    *,
    step: int = 0,
    at_s: float | None = None,
    device: str = "",
    axis: str | None = None,
    run_id: str = RUN,
) -> Table:
    """Rows of a rank, a second and a step apart; of a machine where the rank is None."""
    values = np.array(list(columns.values()), np.float64).T
    count = len(values)
    start_s = NOW_S - 10 + step if at_s is None else at_s
    times_ns = (int(start_s * NS) + np.arange(count) * NS).astype(np.int64)
    kind = axis or ("seconds" if rank is None else "step")
    source = Source(run_id, SEGMENT, rank, HOST, device, kind)
    steps = np.arange(step, step + count) if kind == "step" else np.zeros(count, np.int64)
    return Table(source, tuple(columns), steps, times_ns, values)


def event(kind: str, fields: dict[str, object]) -> Event:
    """An event that stepscope records of rank 0."""
    return Event(kind, int(NOW_S * NS), None, 0, SEGMENT, fields)


def full_state(options: Options | None = None) -> LiveState:
    """A run of two ranks on a host with eight GPUs, with every figure that is served."""
    state = LiveState(now=lambda: NOW_S)
    state.add_run(RUN, options or Options(user_metrics=("val/*",)))
    state.begin(process(0))
    state.begin(process(1, dropped=3))
    add_machine(state)
    for rank in (0, 1):
        state.take(rows({"batch/samples": [32.0], "batch/tokens": [4096.0]}, rank))
        state.take(
            rows({"gpu/process_memory_bytes": [1e9]}, rank, device=GPU, axis="seconds", at_s=NOW_S - 1)
        )
        state.take(rows({"process/cpu_ratio": [0.5], "process/rss_bytes": [1e9]}, rank, axis="seconds"))
        state.take(
            rows(
                {
                    "loss": [0.7, 0.6],
                    "learning_rate": [0.1, 0.01],
                    "epoch": [0.0, 1.5],
                    "gradient_norm": [3.0, 2.0],
                    "val/loss": [0.9, 0.8],
                    "memory/allocated_bytes": [2**30, 2**30],
                    "memory/reserved_bytes": [2**31, 2**31],
                    "memory/peak_bytes": [2**31, 2**31],
                    "loader/ready_batches": [4.0, 3.0],
                    "stepscope/overhead_ratio": [0.002, 0.004],
                },
                rank,
            )
        )
        phases = {f"phase/{name}_seconds": [0.1, 0.2] for name in ("transfer", "forward", "backward")}
        phases |= {f"phase/{name}_seconds": [0.1, 0.1] for name in ("data", "optimizer", "other")}
        state.take(rows({"step_seconds": [0.6, 0.8], **phases, "phase/sampled_ratio": [1.0, 0.5]}, rank))
    state.take(rows({"step_seconds": [0.7]}, 0, step=2, at_s=NOW_S - 8))
    state.take(
        rows(
            {"stepscope/exporter_failing": [1.0], "stepscope/exporter_dropped_total": [7.0]},
            None,
            device="exporter-mlflow",
            axis="seconds",
        )
    )
    state.take_event(RUN, event("loader", {"num_workers": 4}))
    state.take_event(RUN, event("census", {"autocast": "bfloat16"}))
    state.set_verdicts(
        RUN,
        [{"id": "input.exposed_wait", "severity": "warning", "open": True}],
        [{"rule": "nonfinite_loss", "severity": "critical", "resolved_ns": None}],
        [{"channel": "mail", "sent_ns": int(NOW_S * NS), "given_up_ns": None}],
    )
    return state


def add_machine(state: LiveState) -> None:
    """Adds two samples, a second apart, of the host and of each GPU."""
    for reading in EIGHT:
        if isinstance(reading, DeviceFacts):
            state.describe(reading)
        elif isinstance(reading, Sample) and reading.device:
            figures = {key: [value, value] for key, value in reading.values.items()}
            state.take(rows(figures, None, device=reading.device))
    # Boards of this kind have no fan, and do not tell their traffic.
    more = {"gpu/fan_ratio": [0.3, 0.4], "gpu/pcie_received_bytes_per_second": [1e6, 2e6]}
    state.take(rows({**more, "gpu/pcie_sent_bytes_per_second": [1e6, 1e6]}, None, device=GPU))
    host = {"cpu/utilization_ratio": [0.25, 0.5], "memory/used_bytes": [2e9, 3e9]}
    rates = ("disk/read", "disk/write", "network/received", "network/sent")
    host |= {f"{name}_bytes_per_second": [100.0, 300.0] for name in rates}
    state.take(rows(host, None))


def text_of(state: LiveState, accept: str = "") -> str:
    """What a scrape gets."""
    return render(state, accept)[0].decode()


def samples_of(text: str) -> dict[str, dict[Labels, float]]:
    """The samples of a text, read by the client library of Prometheus: by name and labels."""
    reads = read_openmetrics if text.endswith("# EOF\n") else read_plain
    samples: dict[str, dict[Labels, float]] = {}
    for family in reads(text):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            of_name = samples.setdefault(sample.name, {})
            assert labels not in of_name, f"{sample.name} has two samples with the labels {dict(labels)}"
            of_name[labels] = sample.value
    return samples


def value_of(text: str, name: str, /, **labels: str) -> float:
    """The value of the one sample with these labels, and perhaps others."""
    matching = {
        known: value
        for known, value in samples_of(text).get(name, {}).items()
        if frozenset(labels.items()) <= known
    }
    assert len(matching) == 1, f"{name} {labels}: {matching}"
    return next(iter(matching.values()))
