"""Shows two older ways to log that still work: four numbers of a step, and all metrics as one object.

The numbers they report while training goes on come from memory; everything is in the store as well.
"""

import time

from stepscope import TrainingMetrics, TrainingMonitor


def four_numbers() -> None:
    """Logs with `record_metrics` and prints `get_training_stats`."""
    with TrainingMonitor(run="four-numbers", project="examples") as monitor:
        for step in range(100):
            monitor.record_metrics(step, loss=1 / (1 + step), learning_rate=0.001, batch_size=32)
        stats = monitor.get_training_stats()
    print(f"{stats['total_steps']} steps, loss {stats['min_loss']:.3f} to {stats['max_loss']:.3f}")


def one_object() -> None:
    """Logs with `log_training_metrics` and prints `get_performance_summary`."""
    monitor = TrainingMonitor(run="one-object", project="examples")
    monitor.start_monitoring()
    for step in range(100):
        monitor.log_training_metrics(
            TrainingMetrics(
                timestamp=time.time(),
                epoch=step // 50,
                step=step,
                loss=1 / (1 + step),
                learning_rate=0.001,
                batch_size=32,
            )
        )
    summary = monitor.get_performance_summary()
    monitor.stop_monitoring()
    print(f"{summary['run']}: {summary['steps']} steps, {summary['steps_per_second']:.0f} a second")


if __name__ == "__main__":
    four_numbers()
    one_object()
