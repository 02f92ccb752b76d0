"""Trains with a warm-up and two drops of the learning rate, and tells what each phase was worth.

The loop fits a linear model in numpy, batch by batch: the rate decides how far it jumps about the best one.
"""

import numpy as np

import stepscope
from stepscope.views import schedule_of

FEATURES, BATCH_SIZE = 32, 16
WARM_UP, LEVELS, STEPS_PER_LEVEL = 100, (0.2, 0.02, 0.002), 1000


def rate_at(step: int) -> float:
    """The learning rate of a step."""
    if step < WARM_UP:
        return LEVELS[0] * (step + 1) / WARM_UP
    return LEVELS[(step - WARM_UP) // STEPS_PER_LEVEL]


def main() -> None:
    """Trains, reads the run back, and prints what can be said of its schedule."""
    rng = np.random.default_rng(0)
    truth, weights = rng.normal(size=FEATURES), np.zeros(FEATURES)
    with stepscope.TrainingMonitor(run="schedule", project="examples") as monitor:
        for step in range(WARM_UP + len(LEVELS) * STEPS_PER_LEVEL):
            x = rng.normal(size=(BATCH_SIZE, FEATURES))
            error = x @ (weights - truth) + rng.normal(size=BATCH_SIZE)
            monitor.log_training_step(loss=(error**2).mean(), learning_rate=rate_at(step))
            weights -= rate_at(step) * 2 * x.T @ error / BATCH_SIZE
    schedule = schedule_of(stepscope.open_store().run("schedule"))
    print(schedule.name)
    for phase in schedule.phases:
        print(f"  steps {phase.first_step} to {phase.last_step}, rate {phase.last_rate:.2g}: {phase.verdict}")


if __name__ == "__main__":
    main()
