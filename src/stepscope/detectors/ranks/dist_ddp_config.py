"""Detects settings with which ranks exchange gradients more slowly than they could."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np

from stepscope.analysis.remedies import remedies_in
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector, TooLittleEvidence
from stepscope.schema.finding import Chart, Estimate, Evidence, Finding, severity_of
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.schema.finding import Remedy, Severity
    from stepscope.schema.window import RankWindow, Window

SETUP_EVENT, GPU_MEMORY = "census", "gpu/process_memory_bytes"
UNUSED = "find_unused_parameters"

COST_OF_SEARCH_S, SLOW_SEARCH = 0.0005, 5.0
"""The search goes through the graph in each step, and ranks exchange which parameters were used. That takes
about this long, and several times that for models of many layers: it matters to short steps."""

MAX_SHARE, UNMEASURED = 0.2, 0.049
"""The largest share of the step that is estimated for it; as it is not measured, it is a notice at most."""

LAUNCH = "torchrun --nproc-per-node=gpu train.py      # one process for each GPU"


class _Setting(NamedTuple):
    """A setting that costs time, and how to change it."""

    name: str
    value: str
    headline: str
    detail: str
    severity: Severity
    remedies: tuple[Remedy, ...]
    hint: str
    estimate: Estimate | None = None


@dataclass(frozen=True)
class ReplicaSettings(Detector):
    """Reads how the model is wrapped, and what DistributedDataParallel logs about itself."""

    id: ClassVar[str] = "dist.ddp_config"
    title: ClassVar[str] = "Ranks exchange gradients in a slow way"
    sentence: ClassVar[str] = (
        "a model on several GPUs is wrapped in `DataParallel`, gradients on a GPU are exchanged by gloo, or "
        "`find_unused_parameters` is on and all parameters have gradients"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((STEP_SECONDS,),)
    reads: ClassVar[tuple[str, ...]] = (GPU_MEMORY,)
    events: ClassVar[tuple[str, ...]] = (SETUP_EVENT,)
    for_each_rank: ClassVar[bool] = False

    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False

    steps: Annotated[int, Range(20)] = 100
    """Minimum number of steps in which all parameters have gradients."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Checks the newest setup."""
        setups: list[Mapping[str, Any]] = [event.fields for event in window.events_of(SETUP_EVENT, rank.rank)]
        if not setups:
            return TooLittleEvidence("Needs the setup of the training, which is recorded with `watch`.")
        libraries = window.libraries(rank.rank)
        setting = (
            _data_parallel(rank, window, setups[-1], libraries)
            or _slow_backend(setups[-1], libraries)
            or (
                _needless_search(rank, window, setups[-1], libraries)
                if int(rank.steps[-1]) >= self.steps
                else None
            )
        )
        if setting is None:
            return "No setting slows down the exchange of gradients."
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=setting.headline,
            detail=setting.detail,
            severity=setting.severity,
            confidence=0.9 if setting.estimate is None else 0.7,
            share=None if setting.estimate is None else setting.estimate.likely,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            evidence=(Evidence(setting.name, setting.value),),
            chart=Chart((STEP_SECONDS,), first, last),
            remedies=setting.remedies,
            tries=(setting.hint,),
            estimate=setting.estimate,
            how="Read from the wrapper of the model after the first step and once a minute. What it costs in "
            "this run is not measured.",
        )


def _data_parallel(
    rank: RankWindow, window: Window, setup: Mapping[str, Any], libraries: set[str]
) -> _Setting | None:
    used = {
        figures.device
        for figures in window.figures(GPU_MEMORY, rank.host, rank.rank)
        if figures.values.max() > 0
    }
    if len(used) < 2 or not any(str(name).startswith("DataParallel") for name in setup.get("wrappers", ())):
        return None
    return _Setting(
        "DataParallel",
        f"{len(used)} GPUs",
        f"`DataParallel` drives {len(used)} GPUs from one process.",
        "It copies the model to all GPUs in each step, and one Python thread after the other starts their "
        "work. `DistributedDataParallel` has a process for each GPU and exchanges gradients during the "
        "backward pass.",
        "warning",
        remedies_in(
            libraries,
            "Use `DistributedDataParallel`, with a process for each GPU.",
            {
                "torch": "model = DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])\n"
                + LAUNCH,
                "lightning": 'trainer = Trainer(devices=-1, strategy="ddp")',
                "transformers": LAUNCH,
            },
        ),
        "DistributedDataParallel",
    )


def _slow_backend(setup: Mapping[str, Any], libraries: set[str]) -> _Setting | None:
    backend = _replicas(setup).get("backend")
    if backend != "gloo" or not any("cuda" in str(place) for place in setup.get("parameter_devices", ())):
        return None
    return _Setting(
        "backend",
        "gloo",
        "Gradients on a GPU are exchanged by gloo, through the memory of the host.",
        "NCCL copies them from GPU to GPU, over NVLink, PCI Express or the network.",
        "warning",
        remedies_in(
            libraries,
            "Use NCCL.",
            {
                "torch": 'torch.distributed.init_process_group("nccl")',
                "lightning": 'trainer = Trainer(strategy=DDPStrategy(process_group_backend="nccl"))',
                "transformers": 'arguments = TrainingArguments(..., ddp_backend="nccl")',
            },
        ),
        "nccl",
    )


def _needless_search(
    rank: RankWindow, window: Window, setup: Mapping[str, Any], libraries: set[str]
) -> _Setting | None:
    setups = [_replicas(event.fields) for event in window.events_of(SETUP_EVENT)]
    counts = [replicas["unused_bytes"] for replicas in setups if "unused_bytes" in replicas]
    is_on = any(UNUSED in str(name) for name in setup.get("wrappers", ()))
    if not is_on or not counts or any(counts):
        return None
    (taken,) = rank.aligned(STEP_SECONDS, steady=False)
    share = min(COST_OF_SEARCH_S / max(float(np.median(taken)), COST_OF_SEARCH_S), MAX_SHARE)
    return _Setting(
        UNUSED,
        "True",
        "`find_unused_parameters` is on, but all parameters have gradients.",
        "In each step, the graph is searched for parameters without a gradient. A model that leaves some out "
        "only in a few steps needs that; others do not.",
        severity_of(min(share, UNMEASURED)),
        remedies_in(
            libraries,
            "Leave it out, if no step skips a part of the model.",
            {
                "torch": "model = DistributedDataParallel(model, find_unused_parameters=False)",
                "lightning": 'trainer = Trainer(strategy="ddp")',
                "transformers": "arguments = TrainingArguments(..., ddp_find_unused_parameters=False)",
            },
        ),
        "find_unused_parameters=False",
        Estimate(0.0, share, min(SLOW_SEARCH * share, 1.0)),
    )


def _replicas(setup: Mapping[str, Any]) -> Mapping[str, Any]:
    replicas = setup.get("replicas")
    return replicas if isinstance(replicas, dict) else {}
