"""Detects a training that has stopped recording although its process lives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.gpu.gpu_readings import GPU_KEYS, UTILIZATION, gpus_of
from stepscope.analysis.wording import listed, number, percent
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepscope.schema.window import Floats, RankWindow, Window

CPU_USE = "tree/cpu_ratio"
WORKER_CPU_USE = "process/cpu_ratio"

AFTER_S = 5.0
"""Readings from so long after the last record on say what a stalled process does."""

WAIT_FOR_RANKS = Remedy(
    "Let a collective that waits too long fail with the name of the rank that is missing.",
    'torch.distributed.init_process_group("nccl", timeout=datetime.timedelta(minutes=10))\n'
    "# TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun ...",
    "PyTorch",
)
WAIT_FOR_DATA = Remedy(
    "Let a loader that waits too long for a worker fail, and look at what the workers wait for.",
    "loader = DataLoader(dataset, num_workers=4, timeout=120)",
    "PyTorch",
)


@dataclass(frozen=True)
class StalledRun(Detector):
    """Describes a stall: where ranks stopped, and what their processes do since."""

    id: ClassVar[str] = "run.stall"
    title: ClassVar[str] = "The training is stalled"
    sentence: ClassVar[str] = (
        "a live process records nothing for longer than `agent.stall_after_s` and than its usual pauses, and "
        "neither writes nor uses a processor"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ()
    reads: ClassVar[tuple[str, ...]] = (STEP_SECONDS, *GPU_KEYS)
    courses: ClassVar[tuple[str, ...]] = (CPU_USE, WORKER_CPU_USE, UTILIZATION)
    min_steps: ClassVar[int] = 0
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False

    busy: Annotated[float, Range(0, 1)] = 0.05
    """Minimum use of a processor, or of a GPU, by a process that does something."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Reads which ranks are stalled, and what is known since then."""
        if not window.stalled:
            return "All processes record."
        ranks = tuple(sorted(window.stalled))
        since = min(window.stalled.values())
        last_steps = {each.rank: int(each.steps[-1]) for each in window.ranks if len(each.steps)}
        behind = _behind(last_steps)
        used = _used_since(window, ranks, CPU_USE, since)
        workers = _used_since(window, ranks, WORKER_CPU_USE, since)
        gpu = _gpu_since(window, since)
        last = min((last_steps[each] for each in ranks if each in last_steps), default=None)
        where = "before the first step" if last is None else f"after step {last}"
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"{_who(ranks, window)} stopped {where}: no record since {_clock(since)}.",
            detail=self._cause(behind, last_steps, used, workers, gpu),
            severity="critical",
            confidence=0.9 if used is not None and used < self.busy else 0.7,
            first_step=last,
            last_step=last,
            first_time=since,
            last_time=max([since, *_times(window, ranks)]),
            rank=behind[0]
            if len(behind) == 1
            else (ranks[0] if len(ranks) == 1 and len(window.ranks) > 1 else None),
            evidence=(
                Evidence("last record", _clock(since), f"rank {listed(ranks)}"),
                *(
                    Evidence(f"last step of rank {each}", f"{step:,}")
                    for each, step in list(last_steps.items())[:4]
                ),
                *_uses(
                    (
                        ("processor use since then", used),
                        ("of loader workers", workers),
                        ("GPU use since then", gpu),
                    )
                ),
            ),
            chart=Chart((CPU_USE, UTILIZATION) if gpu is not None else (CPU_USE,)),
            remedies=self._remedies(window, ranks, workers),
            tries=("see where it hangs: py-spy dump",),
            how="The agent reads the journal of each process and, in a long silence, what its processes "
            "write and use. The phase in which a step hangs is not recorded while it lasts.",
        )

    def _cause(
        self,
        behind: tuple[int, ...],
        last_steps: Mapping[int, int],
        used: float | None,
        workers: float | None,
        gpu: float | None,
    ) -> str:
        if behind:
            who, step = f"rank {listed(behind)}", min(last_steps.values())
            return (
                f"The other ranks wait for {who} in an exchange: it stopped at step {step}. Look there first."
            )
        if workers is not None and workers >= self.busy:
            return "Loader workers are at work: the training waits for a batch that takes very long."
        if gpu is not None and gpu >= self.busy and len(last_steps) > 1:
            return "GPUs are busy without a step, as in a collective that not all ranks have called."
        if used is not None and used < self.busy:
            return "Nothing computes: it waits for a lock, a disk, a network, or a process that is gone."
        return "What it waits for is not known."

    def _remedies(self, window: Window, ranks: Sequence[int], workers: float | None) -> tuple[Remedy, ...]:
        mark = window.facts.get(ranks[0], {}).get("mark")
        pid = mark.get("pid", "PID") if isinstance(mark, dict) else "PID"
        look = Remedy("Look at where it hangs; this stops it for a moment only.", f"py-spy dump --pid {pid}")
        return (
            look,
            *((WAIT_FOR_RANKS,) if len(window.ranks) > 1 else ()),
            *((WAIT_FOR_DATA,) if workers is not None else ()),
        )


def _behind(last_steps: Mapping[int, int]) -> tuple[int, ...]:
    """Returns the ranks that stopped before the others, if these are fewer."""
    first = min(last_steps.values(), default=0)
    behind = tuple(rank for rank, step in last_steps.items() if step == first)
    return behind if 2 * len(behind) <= len(last_steps) and len(behind) < len(last_steps) else ()


def _used_since(window: Window, ranks: Sequence[int], key: str, since: float) -> float | None:
    """Returns the highest mean use of a processor since then; of loader workers for their key."""
    uses = [
        float(np.mean(values))
        for figures in window.machine
        if figures.key == key
        and figures.rank in ranks
        and (key == CPU_USE or figures.device.startswith("loader-"))
        and len(values := _after(figures.times, figures.values, since))
    ]
    return max(uses, default=None)


def _gpu_since(window: Window, since: float) -> float | None:
    uses = [
        float(np.mean(values))
        for gpu in gpus_of(window)
        if UTILIZATION in gpu.figures
        and len(values := _after(gpu.figures[UTILIZATION].times, gpu.figures[UTILIZATION].values, since))
    ]
    return max(uses, default=None)


def _after(times: Floats, values: Floats, since: float) -> Floats:
    return values[times > since + AFTER_S]


def _times(window: Window, ranks: Sequence[int]) -> list[float]:
    return [
        float(figures.times[-1])
        for figures in window.machine
        if figures.key == CPU_USE and figures.rank in ranks
    ]


def _uses(uses: Sequence[tuple[str, float | None]]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            label,
            percent(use) if use < 1 else number(use, 2),
            "of one processor" if "GPU" not in label else "",
        )
        for label, use in uses
        if use is not None
    )


def _who(ranks: tuple[int, ...], window: Window) -> str:
    return f"Rank {listed(ranks)}" if len(ranks) < len(window.ranks) else "The training"


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(int(at), timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
