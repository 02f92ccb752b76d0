"""Records a training in five lines: a monitor, a loader, a loss.

python examples/simple.py
stepscope show simple
"""

import math
import random

import stepscope


def train_step(batch: list[float]) -> float:
    """Stands for your own: takes a batch, returns a loss."""
    return 2.0 * math.exp(-batch[0] / 60) + 0.05 * random.random()


def main() -> None:
    """Trains for two epochs."""
    loader = [[float(number)] for number in range(100)]
    with stepscope.TrainingMonitor(run="simple", project="examples") as monitor:
        for _epoch in range(2):
            for batch in monitor.batches(loader):
                loss = train_step(batch)
                monitor.log_training_step(loss=loss)
    print(f"{monitor.run_id} is in {monitor.directory}; look at it with: stepscope show simple")


if __name__ == "__main__":
    main()
