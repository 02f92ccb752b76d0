"""Trains with a loader that is too slow and a loss that jumps once, and prints what is found and what to do.

The loop computes nothing worth learning: a batch takes four times as long to make as to use.
"""

import math
from collections.abc import Iterator

import stepscope

STEPS, WORK = 200, 4_000


def work(amount: int) -> float:
    """Keeps the processor busy."""
    return sum(math.sin(number) for number in range(amount))


def loader() -> Iterator[float]:
    """Makes batches, slowly."""
    for _ in range(STEPS):
        yield work(4 * WORK)


def main() -> None:
    """Trains, and prints the findings the agent has kept."""
    with stepscope.TrainingMonitor(run="diagnose", project="examples") as monitor:
        for step, batch in enumerate(monitor.batches(loader())):
            noise = 0.01 * math.sin(7 * step + batch + work(WORK))
            monitor.log_training_step(loss=9.0 if step in (120, 121, 122) else 0.5 + noise)
    for finding in stepscope.open_store().run("diagnose").findings():
        print(f"{finding['severity']}: {finding['headline']}")
        for remedy in finding["remedies"][:1]:
            print(f"  {remedy['text']}")
    print("The same with evidence and code: stepscope diagnose diagnose")


if __name__ == "__main__":
    main()
