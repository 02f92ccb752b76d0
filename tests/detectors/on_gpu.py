"""Simulated trainings on a GPU: both clocks, the readings of the GPU, and the setup of the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stepscope.analysis.diagnose import Diagnosis
from tests.detectors.simulated import SETUP, Columns, diagnose, going_well

GPU = "GPU-1111"
DESCRIBED = ("device", {"device": GPU, "index": 0, "name": "NVIDIA H200"})
ATTENTION = ("attention", {"steps": 3, "fused": 72, "math": 0, "by_hand": 0, "length": 1024})
"""What a watched training records of its attention."""

DEVICE_PHASES = {
    "data": 0.001,
    "transfer": 0.009,
    "forward": 0.3,
    "backward": 0.56,
    "optimizer": 0.1,
    "other": 0.03,
}
"""The share of a step that each phase takes on the GPU's clock in a training that the GPU limits."""

BUSY = {
    "gpu/utilization_ratio": 1.0,
    "gpu/sm_active_ratio": 0.93,
    "gpu/tensor_active_ratio": 0.45,
    "gpu/dram_active_ratio": 0.3,
    "gpu/power_watts": 640.0,
    "gpu/power_limit_watts": 700.0,
    "gpu/process_memory_bytes": 92e9,
    "gpu/memory_used_bytes": 92.6e9,
    "gpu/memory_total_bytes": 150.75e9,
    "gpu/process_count": 1.0,
}
"""Readings of an H200 that computes in bfloat16 all the time."""

TRANSFORMER = {
    **SETUP[1],
    "parameters": 350_000_000,
    "trainable_parameters": 350_000_000,
    "parameter_dtypes": {"float32": 350_000_000},
    "parameter_devices": {"cuda:0": 350_000_000},
    "layers": {"Linear": 300_000_000, "Embedding": 49_000_000, "LayerNorm": 1_000_000},
    "autocast": "cuda bfloat16",
    "tf32_matmul": True,
    "tf32_cudnn": True,
    "float32_matmul_precision": "high",
    "cudnn_benchmark": False,
    "cudnn_deterministic": False,
    "deterministic_algorithms": False,
    "compiled": False,
    "wrappers": [],
    "optimizers": [{"name": "AdamW", "groups": 2, "fused": None, "foreach": None, "capturable": False}],
    "trainable_tensors": 290,
    "sync_debug_mode": 0,
    "devices": [{"index": 0, "name": "NVIDIA H200", "total_bytes": 150_754_820_096}],
}
"""The setup of a transformer with autocast to bfloat16, and TF32 for what remains."""


def on_gpu(
    seed: int = 1,
    steps: int = 600,
    step_s: float = 0.1,
    lags: dict[str, float] | None = None,
    phases: dict[str, float] | None = None,
    every: int = 5,
) -> Columns:
    """A healthy run whose steps are timed on the GPU, one in `every` of them.

    `lags` are shares of a step that the GPU is behind the host at the end of each phase; without any, it has
    work all the time.
    """
    run = going_well(seed, steps, step_s)
    chance = np.random.default_rng(seed + 100)
    chosen = chance.random(steps) < 1 / every
    chosen[:10] = True
    jitter = np.exp(chance.normal(0, 0.02, steps))
    taken = run["step_seconds"]
    behind = lags if lags is not None else dict.fromkeys(DEVICE_PHASES, 0.9)
    for name, share in (phases or DEVICE_PHASES).items():
        run[f"device/{name}_seconds"] = np.where(chosen, share * taken * jitter, np.nan)
        lag = behind.get(name, 0.0) * step_s * jitter + np.abs(chance.normal(0, 2e-5, steps))
        run[f"lag/{name}_seconds"] = np.where(chosen, lag, np.nan)
    run["device/step_seconds"] = np.where(chosen, taken, np.nan)
    run["device/sampled_ratio"] = np.where(chosen, 1 / every, np.nan)
    return run


def readings(**changes: Any) -> dict[tuple[str, str], Any]:
    """Readings of the busy GPU with other values of some; None leaves one out."""
    merged = {**BUSY, **{f"gpu/{name}": value for name, value in changes.items()}}
    return {(key, GPU): value for key, value in merged.items() if value is not None}


def diagnosed(
    folder: Path,
    run: Columns,
    setup: dict[str, Any] | None = None,
    machine: dict[tuple[str, str], Any] | None = None,
    facts: dict[str, Any] | None = None,
    events: tuple[tuple[str, dict[str, Any]], ...] = (),
    **fields: Any,
) -> Diagnosis:
    """Diagnoses a run on the GPU; `fields` change its setup, None removes a field."""
    setup = {
        name: value for name, value in {**TRANSFORMER, **(setup or {}), **fields}.items() if value is not None
    }
    described = readings() if machine is None else machine
    return diagnose(
        folder,
        run,
        events=(DESCRIBED, ATTENTION, ("census", setup), *events),
        machine=described,
        facts=facts,
    )


def alarming(diagnosis: Diagnosis) -> list[str]:
    """The ids of the findings that are warnings or worse."""
    return [finding.id for finding in diagnosis.findings if finding.severity in ("warning", "critical")]


def finding_of(diagnosis: Diagnosis, name: str) -> Any:
    """The finding of a detector; None if it has none."""
    return next((finding for finding in diagnosis.findings if finding.id == name), None)


def why_not(diagnosis: Diagnosis, name: str) -> str:
    """Why a detector has no finding."""
    return next(check.why_not for check in diagnosis.considered if check.id == name)
