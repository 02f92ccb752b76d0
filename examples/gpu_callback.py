"""A loop that calls back at its steps, with a GPU monitor beside it and files of JSON lines.

Runs without a GPU too: then the monitor says why there is none.
"""

import math
import tempfile
from pathlib import Path

from stepscope import GPUMonitor, TrainingMonitor, TrainingMonitorCallback

STEPS = 200


def main() -> None:
    """Trains on invented numbers."""
    with tempfile.TemporaryDirectory() as folder:
        gpu_monitor = GPUMonitor(gpu_index=0, sample_interval=0.1, log_dir=folder)
        callback = TrainingMonitorCallback(
            gpu_monitor, TrainingMonitor(run="gpu-callback", project="examples")
        )
        callback.on_train_begin()
        for step in range(STEPS):
            callback.on_step_begin()
            loss = math.exp(-step / 50)
            callback.on_step_end(
                step=step, epoch=step / 100, loss=loss, lr=1e-3, grad_norm=loss / 2, throughput=32.0
            )
        summary = callback.on_train_end()
        files = sorted(path.name for path in Path(folder).iterdir())
    print(f"steps: {summary['training']['total_steps']}, files: {len(files)}")
    print(f"GPU: {summary['gpu'].get('utilization_percent', gpu_monitor.reason)}")


if __name__ == "__main__":
    main()
