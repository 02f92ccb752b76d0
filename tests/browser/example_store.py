"""Writes a store worth looking at: trainings that run, crashed and finished, with findings and alerts."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, Remedy
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.base import OpenAlert
from stepscope.store.sqlite import SqliteStore

NS = 10**9
GIB = 2**30
HOST = "node-a"
RANKS = 8
STEPS = 3_000
STEP_S = 0.2
LIVE, CRASHED, FINISHED = "resnet50-bf16-live", "resnet50-large-batch", "resnet50-baseline"
PLAIN, BEGUN = "nothing-special", "just-begun"
"""A run that failed at once, to write notes at, and one that has not made a step."""
PHASES = {
    "data": 0.085,
    "transfer": 0.006,
    "forward": 0.038,
    "backward": 0.06,
    "optimizer": 0.011,
    "other": 0.004,
}
FACTS = {
    "command": ["torchrun", "--nproc-per-node", "8", "train.py", "--config", "configs/resnet50.yaml"],
    "python": "3.11.9",
    "platform": "Linux-6.8-x86_64",
    "cpus": 96,
    "world_size": RANKS,
    "libraries": {"torch": "2.11.0", "numpy": "2.3.1"},
    "environment": {"OMP_NUM_THREADS": "8", "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"},
    "commit": "9f3c1ab27d0e55b1c9f2a6f1e0d4c3b2a1908f7e",
    "total_steps": 10_000,
    "config": {
        "model": {"name": "resnet50", "norm": {"kind": "batch", "momentum": 0.1}},
        "optimizer": {"name": "adamw", "lr": 0.001, "weight_decay": 0.05},
        "data": {"path": "/data/imagenet", "batch_size": 256, "num_workers": 4},
        "seed": 17,
    },
}

TARGETS = {
    "steps_per_second": 4.0,
    "gpu_utilization_percent": 99.5,
    "cpu_utilization_percent": 30,
    "cost": 250.0,
}


class ExampleStore:
    """A store that is written by hand, as an agent would write it."""

    def __init__(self, folder: Path, now_ns: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.now_ns = time.time_ns() if now_ns is None else now_ns
        self.store = SqliteStore(folder / "store.sqlite")
        self.rng = np.random.default_rng(7)
        self.next_step = STEPS

    def fill(self) -> ExampleStore:
        """Writes all trainings; gives itself."""
        begun_ns = self.now_ns - int(STEPS * STEP_S) * NS
        self.training(FINISHED, begun_ns - 86_400 * NS, "finished", slow_data_from=STEPS)
        reason = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB on GPU 3."
        self.training(CRASHED, begun_ns - 7_200 * NS, "crashed", reason=reason, batch_size=512)
        self.training(LIVE, begun_ns, "running")
        self._trouble(begun_ns)
        self.processes(PLAIN, begun_ns - 100 * NS, begun_ns, "failed", ranks=1)
        self.processes(BEGUN, self.now_ns, self.now_ns, "running", ranks=1)
        return self

    def training(self, name, begun_ns, status, reason="", batch_size=256, slow_data_from=STEPS // 2) -> None:
        """One training of eight ranks and GPUs: steps, phases, machine, events."""
        times = begun_ns + (np.arange(1, STEPS + 1) * STEP_S * NS).astype(np.int64)
        facts = {
            **FACTS,
            "config": {**FACTS["config"], "data": {**FACTS["config"]["data"], "batch_size": batch_size}},
            "targets": TARGETS if name == FINISHED else {},
        }
        self.processes(name, begun_ns, int(times[-1]), status, reason, facts)
        for rank in range(RANKS):
            self.append(
                Source(name, "s1", rank, HOST), self._steps(rank, slow_data_from), np.arange(STEPS), times
            )
        self._machine(name, begun_ns, times)
        self._events(name, begun_ns, times)

    def processes(self, name, begun_ns, last_ns, status, reason="", facts=FACTS, ranks=RANKS) -> None:
        """The processes of a training, all in the same state."""
        ended_ns = None if status in ("running", "stalled") else last_ns + NS
        with self.store.transaction():
            for rank in range(ranks):
                state = {
                    "status": status,
                    "reason": reason,
                    "ended_ns": ended_ns,
                    "last_ns": last_ns,
                    "facts": facts,
                }
                self.store.put_process(
                    Process(name, name, "vision", "s1", rank, HOST, 4_000 + rank, "rank", begun_ns, **state)
                )

    def append(self, source: Source, columns: dict[str, np.ndarray], steps, times_ns) -> None:
        """Rows of one key set."""
        values = np.array(list(columns.values()), np.float64).T
        with self.store.transaction():
            self.store.append(
                source, list(columns), np.asarray(steps, np.int64), np.asarray(times_ns, np.int64), values
            )

    def light_runs(self, count: int) -> None:
        """Many short trainings, for long lists."""
        with self.store.transaction():
            for number in range(count):
                begun_ns = self.now_ns - (number + 2) * 3_600 * NS
                name = f"sweep-{number:04d}"
                facts = {"config": {"batch_size": 2 ** (4 + number % 5), "lr": 10.0 ** -(2 + number % 3)}}
                status = ("finished", "finished", "failed")[number % 3]
                state = {
                    "status": status,
                    "ended_ns": begun_ns + 60 * NS,
                    "last_ns": begun_ns + 59 * NS,
                    "facts": facts,
                }
                self.store.put_process(
                    Process(name, name, "sweep", "s1", 0, HOST, 1, "rank", begun_ns, **state)
                )
                values = np.linspace(2, 0.5 + number % 7 / 10, 5).reshape(5, 1)
                times = begun_ns + np.arange(5) * NS
                self.store.append(Source(name, "s1", 0, HOST), ["loss"], np.arange(5), times, values)

    def go_on(self, **values: float) -> int:
        """One more step of the training that runs, now, as the agent would store it; gives the step."""
        step, self.next_step = self.next_step, self.next_step + 1
        columns = {key: np.array([value]) for key, value in {"step_seconds": STEP_S, **values}.items()}
        self.append(Source(LIVE, "s1", 0, HOST), columns, [step], [time.time_ns()])
        self.processes(LIVE, self.now_ns - int(STEPS * STEP_S) * NS, time.time_ns(), "running")
        return step

    def close(self) -> None:
        """Lets go of the store."""
        self.store.close()

    def _steps(self, rank: int, slow_data_from: int) -> dict[str, np.ndarray]:
        at = np.arange(STEPS)
        phases = {}
        for phase, seconds in PHASES.items():
            column = seconds * (1 + 0.08 * self.rng.standard_normal(STEPS))
            if phase == "data":
                column = np.where(at < slow_data_from, 0.12, 1.0) * column
            if phase == "backward" and rank == 5:
                column = column * 1.15
            phases[f"phase/{phase}_seconds"] = np.abs(column)
        phases["step_seconds"] = np.sum(list(phases.values()), axis=0)
        return phases | (self._logged(at) if rank == 0 else {})

    def _logged(self, at: np.ndarray) -> dict[str, np.ndarray]:
        share = at / STEPS
        noise = self.rng.standard_normal(STEPS)
        evaluated = 2.2 * np.exp(-3 * share) + 0.9
        evaluated[[1_000, 1_001]] = np.nan, np.inf
        return {
            "loss": 2.4 * np.exp(-4 * share) + 0.75 + 0.05 * noise,
            "accuracy": 1 - 1 / (1 + 6 * share) + 0.01 * noise,
            "learning_rate": 1e-3 * np.where(share < 0.05, share / 0.05, 0.5 * (1 + np.cos(np.pi * share))),
            "gradient_norm": 1.1 + 0.2 * np.abs(noise) + 3 * np.exp(-(((at - 1_800) / 20.0) ** 2)),
            "val/loss": evaluated,
            "val/accuracy": 1 - 1 / (1 + 5 * share),
        }

    def _machine(self, name: str, begun_ns: int, times: np.ndarray) -> None:
        seconds = int((times[-1] - begun_ns) / NS)
        at_ns = begun_ns + np.arange(seconds) * NS
        zeros = np.zeros(seconds, np.int64)
        ones = np.ones(seconds)
        for gpu in range(8):
            noise = self.rng.standard_normal(seconds)
            busy = np.where(np.arange(seconds) < seconds / 2, 0.92, 0.58) - (0.25 if gpu == 5 else 0)
            columns = {
                "gpu/utilization_ratio": np.clip(busy + 0.04 * noise, 0, 1),
                "gpu/memory_used_bytes": (56 + np.minimum(1, np.arange(seconds) / 60) * 6 + 0.1 * noise)
                * GIB,
                "gpu/memory_total_bytes": 79.6 * GIB * ones,
                "gpu/power_watts": 430 + 160 * busy + 15 * noise,
                "gpu/power_limit_watts": 700 * ones,
                "gpu/temperature_celsius": 58 + gpu + 4 * busy + 0.5 * noise,
            }
            self.append(Source(name, "s1", None, HOST, f"GPU-{gpu:04x}", "seconds"), columns, zeros, at_ns)
        noise = self.rng.standard_normal(seconds)
        columns = {
            "cpu/utilization_ratio": np.clip(0.38 + 0.04 * noise, 0, 1),
            "memory/used_bytes": (212 + 0.01 * np.arange(seconds)) * GIB,
            "memory/total_bytes": 512 * GIB * ones,
            "disk/read_bytes_per_second": np.abs(180e6 + 40e6 * noise),
            "disk/write_bytes_per_second": np.abs(9e6 + 4e6 * noise),
            "network/received_bytes_per_second": np.abs(2e6 + 1e6 * noise),
            "network/sent_bytes_per_second": np.abs(1e6 + 1e6 * noise),
        }
        self.append(Source(name, "s1", None, HOST, "", "seconds"), columns, zeros, at_ns)

    def _events(self, name: str, begun_ns: int, times: np.ndarray) -> None:
        text = "\n".join(f"step {step} loss {0.9 + step % 7 / 100:.4f}" for step in range(STEPS - 60, STEPS))
        with self.store.transaction():
            for gpu in range(8):
                fields = {
                    "uuid": f"GPU-{gpu:04x}",
                    "index": gpu,
                    "name": "NVIDIA H100 80GB HBM3",
                    "vendor": "nvidia",
                }
                more = {"host": HOST, "driver": "570.86", "memory_total_bytes": int(79.6 * GIB)}
                self.store.put_event(name, Event("device", begun_ns, None, None, "s1", {**fields, **more}))
            for epoch in range(1, 6):
                step = epoch * STEPS // 6
                self.store.put_event(name, Event("epoch", int(times[step]), step, 0, "s1", {"epoch": epoch}))
            for step in (1_000, 2_000):
                fields = {"path": f"step-{step}.pt"}
                self.store.put_event(name, Event("checkpoint", int(times[step]), step, 0, "s1", fields))
            self.store.put_event(name, Event("console", int(times[-1]), None, 0, "s1", {"text": text}))

    def _trouble(self, begun_ns: int) -> None:
        recent = [0.08 + 0.017 * number for number in range(20)]
        advice = (
            "Raise num_workers to 12: the loader's workers are at 98% of their cores and 20 cores are idle."
        )
        fields = {
            "step": 2_600,
            "value": 0.41,
            "threshold": 0.25,
            "key": "phase/data_seconds",
            "quantity": "ratio",
        }
        more = {"recent": recent, "advice": advice, "rank": 0}
        message = "41% of the last 2 min were spent waiting for data."
        with self.store.transaction():
            book = self.store.alert_book
            book.fire(
                OpenAlert(LIVE, "input_bound", "warning", message, self.now_ns - 200 * NS, {**fields, **more})
            )
            heat = OpenAlert(
                LIVE,
                "throttled",
                "notice",
                "GPU 5 is held down by heat.",
                begun_ns + 60 * NS,
                {"device": "GPU-0005"},
            )
            book.resolve(book.fire(heat), begun_ns + 160 * NS)
            self.store.put_finding(
                LIVE, waiting_for_data(begun_ns / NS, self.now_ns / NS).as_dict(), self.now_ns
            )


def waiting_for_data(first_time: float, last_time: float) -> Finding:
    """The finding of the training that runs."""
    return Finding(
        id="input.exposed_wait",
        title="Waiting for data",
        headline="41% of step time waits for data",
        detail="The loop waits 85 ms of each 204 ms step for its next batch, and the GPUs idle in that time.",
        severity="critical",
        confidence=0.92,
        first_time=first_time,
        last_time=last_time,
        share=0.41,
        first_step=STEPS // 2,
        last_step=STEPS - 1,
        evidence=(
            Evidence("Data wait", "85 ms", "of a 204 ms step, median of 1,500"),
            Evidence("Ready batches", "0", "the queue was empty in 97% of looks"),
            Evidence("Loader workers", "98%", "of 4 cores; 20 cores are idle"),
        ),
        chart=Chart(("phase/data_seconds", "step_seconds"), STEPS // 2, STEPS - 1),
        ruled_out=("Disk: 12% busy, 0.4 ms a read", "Transfer: 6 ms, from pinned memory"),
        remedies=(
            Remedy(
                "Use 12 loader workers.",
                "loader = DataLoader(dataset, num_workers=12, persistent_workers=True)",
            ),
            Remedy("Decode smaller images once, ahead of training."),
        ),
        tries=("num_workers 4 → 12", "persistent_workers=True"),
        estimate=Estimate(0.28, 0.36, 0.41),
        how="Median of phase/data_seconds over the last 1,500 warm steps, against step_seconds.",
    )
