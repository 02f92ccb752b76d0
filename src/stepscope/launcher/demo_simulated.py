"""Records a simulated run, to show the tool without a training."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from stepscope.launcher.demo_training import BATCH_SIZE, BATCHES_PER_EPOCH, rate_at
from stepscope.schema.keys import STEP_SECONDS, phase_key

if TYPE_CHECKING:
    from stepscope.launcher.demo_training import Progress
    from stepscope.recorder.monitor import TrainingMonitor

TYPICAL_S = {"data": 0.004, "forward": 0.011, "backward": 0.021, "optimizer": 0.003}
SLOW_BATCH_EVERY = 50


def simulate(monitor: TrainingMonitor, steps: int, on_progress: Progress, seed: int = 0) -> None:
    """Records a number of simulated steps; the same ones for the same seed."""
    generator = random.Random(seed)  # noqa: S311 - not used for security
    monitor.event("total_steps", value=steps)
    for step in range(steps):
        seconds = {name: typical * generator.lognormvariate(0, 0.1) for name, typical in TYPICAL_S.items()}
        if step % SLOW_BATCH_EVERY == SLOW_BATCH_EVERY - 1:
            seconds["data"] *= 8
        step_s = sum(seconds.values()) * 1.02
        loss = (0.25 + 2.1 * math.exp(-step / 80)) * generator.lognormvariate(0, 0.06)
        monitor.log_training_step(
            loss=loss,
            accuracy=min(1.0, 0.93 - 0.83 * math.exp(-step / 60) + generator.gauss(0, 0.01)),
            learning_rate=rate_at(step, steps),
            custom_metrics={
                "samples_per_second": BATCH_SIZE / step_s,
                STEP_SECONDS: step_s,
                **{phase_key(name): taken for name, taken in seconds.items()},
            },
            step=step,
            epoch=step // BATCHES_PER_EPOCH,
        )
        on_progress(step + 1, loss)
        if (step + 1) % BATCHES_PER_EPOCH == 0 or step + 1 == steps:
            monitor.event("epoch", step=step, epoch=step // BATCHES_PER_EPOCH, loss=loss)
