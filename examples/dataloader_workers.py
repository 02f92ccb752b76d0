"""Logs from the workers of a data loader: how long each of them takes to decode an example.

A worker is another process; its numbers are a series of their own in the same run, labelled with the worker.
Needs torch: pip install 'stepscope[torch]'
"""

import sys
import time

import stepscope


class Examples:
    """A data set that takes its time, and says how much."""

    def __init__(self, count: int, monitor: stepscope.TrainingMonitor) -> None:
        self._count = count
        self._monitor = monitor

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> float:
        began_at = time.perf_counter()
        time.sleep(0.001)
        self._monitor.log({"decode_seconds": time.perf_counter() - began_at}, step=index)
        return index / self._count


def main() -> None:
    """Reads the data set once, with two workers."""
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        sys.exit("This example needs torch. Install it with: pip install 'stepscope[torch]'")

    with stepscope.TrainingMonitor(run="workers", project="examples") as monitor:
        loader = DataLoader(Examples(256, monitor), batch_size=16, num_workers=2)  # type: ignore[arg-type,var-annotated]  # it has what a data set needs
        for batch in monitor.batches(loader):
            monitor.log_training_step(loss=1 - float(batch.mean()))
    print(f"{monitor.run_id} is in {monitor.directory}")


if __name__ == "__main__":
    main()
