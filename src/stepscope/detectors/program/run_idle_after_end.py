"""Detects a process that keeps its GPU and does nothing after the last step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from stepscope.analysis.wording import percent, seconds
from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.number_format import number
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.window import Floats, RankWindow, Window

MEMORY, CPU_USE = "gpu/process_memory_bytes", "tree/cpu_ratio"
IDLE = 0.05
"""A process is idle while it uses less of one processor than this, with all that it started: one that uses a
GPU starts its work and waits for it, which takes more."""


@dataclass(frozen=True)
class IdleAfterEnd(Detector):
    """Reads how long a process lived and did nothing after the last step of its training."""

    id: ClassVar[str] = "run.idle_after_end"
    title: ClassVar[str] = "The process keeps its GPU after the training"
    sentence: ClassVar[str] = (
        "a run has done all planned steps or has ended, and its process keeps the memory of a GPU for "
        "minutes after its last step without using a processor"
    )
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((STEP_SECONDS,), (MEMORY,), (CPU_USE,))
    courses: ClassVar[tuple[str, ...]] = (CPU_USE,)
    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    minutes: Annotated[float, Range(0.5)] = 5.0
    """Minimum time after the last step in which nothing is done."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Compares the newest readings of the process with the time of its last step."""
        if window.remaining_s != 0:
            return "The training goes on, or its number of steps is not known."
        known = window.figures(MEMORY, rank.host, rank.rank)
        memory = [figures for figures in known if figures.values[-1] > 0]
        used = window.figures(CPU_USE, rank.host, rank.rank)
        if not memory or not used:
            return "The process has no memory of a GPU."
        ended = float(rank.times[-1])
        idle_s = float(used[0].times[-1]) - ended
        busy = float(np.mean(_after(ended, used[0].times, used[0].values)))
        measured = f"The process lived for {seconds(max(idle_s, 0.0))} after its last step"
        if idle_s < 60 * self.minutes:
            return f"{measured}; threshold: {self.minutes:g} min."
        if busy >= IDLE:
            return f"{measured} and was at work."
        held = sum(float(figures.values[-1]) for figures in memory)
        gpus = "a GPU" if len(memory) == 1 else f"{len(memory)} GPUs"
        last = int(rank.steps[-1])
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The process has held {gpus} for {seconds(idle_s)} since its last step.",
            detail="Nobody else can use what it holds, and it is paid for. A process often does not end "
            "because a thread, a loader worker or a tracker still runs, or because a notebook keeps it.",
            severity="warning",
            confidence=0.8,
            first_step=last,
            last_step=last,
            first_time=ended,
            last_time=float(used[0].times[-1]),
            rank=rank.rank if len(window.ranks) > 1 else None,
            device=memory[0].device if len(memory) == 1 else "",
            evidence=(
                Evidence("since the last step", seconds(idle_s)),
                Evidence("memory held", f"{number(held / 2**30, 3)} GiB", f"of {gpus}"),
                Evidence("processor use", percent(busy), "of one processor"),
            ),
            chart=Chart((MEMORY, CPU_USE)),
            ruled_out=("An evaluation or a checkpoint after the training: it would use a processor.",),
            remedies=(
                Remedy(
                    "End the process when the training is done, and what it has started before that.",
                    "del loader                                  # ends its workers\n"
                    "torch.distributed.destroy_process_group()   # where there is one\nsys.exit(0)",
                ),
                Remedy("Look at what it waits for.", "py-spy dump --pid PID"),
            ),
            tries=("end the process",),
            how="The agent reads the process once a second while it lives; the time is that from its "
            "last step to the newest reading.",
        )


def _after(ended: float, times: Floats, values: Floats) -> Floats:
    """Returns the readings after the last step, without the first seconds; 0 if there are none."""
    selected: Floats = values[times > ended + 10]
    return selected if len(selected) else np.zeros(1)
