"""Adds a monitor to a loop that exists already: settings from a dictionary, custom metrics.

The loop fits a logistic regression in numpy. Only the lines that name `monitor` were added.
"""

import time

import numpy as np
from numpy.typing import NDArray

from stepscope import TrainingMonitor

BATCH_SIZE = 64


class Model:
    """A logistic regression."""

    def __init__(self, features: int) -> None:
        self.weights: NDArray[np.float64] = np.zeros(features)

    def predict(self, data: NDArray[np.float64]) -> NDArray[np.float64]:
        """The probability of a yes."""
        return np.asarray(1 / (1 + np.exp(-data @ self.weights)))


class Optimizer:
    """Gradient descent; the monitor reads the learning rate where torch keeps it, too."""

    def __init__(self, model: Model, lr: float) -> None:
        self.model = model
        self.param_groups = [{"lr": lr}]

    def step(self, gradient: NDArray[np.float64]) -> None:
        """Moves the weights, and lowers the rate."""
        self.model.weights -= self.param_groups[0]["lr"] * gradient
        self.param_groups[0]["lr"] *= 0.995


def main() -> None:
    """Trains for three epochs."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=8)
    model = Model(features=8)
    optimizer = Optimizer(model, lr=0.5)

    config = {
        "enable_dashboard": False,
        "dashboard_port": 8080,
        "enable_alerts": True,
    }
    monitor = TrainingMonitor(config, run="integration", project="examples")
    monitor.start_monitoring()

    for epoch in range(3):
        for _batch in range(50):
            began_at = time.perf_counter()
            data = rng.normal(size=(BATCH_SIZE, 8))
            target = (data @ truth > 0).astype(float)
            odds = model.predict(data)
            loss = -np.mean(target * np.log(odds + 1e-9) + (1 - target) * np.log(1 - odds + 1e-9))
            optimizer.step(data.T @ (odds - target) / BATCH_SIZE)

            monitor.log_training_step(
                model=model,
                optimizer=optimizer,
                loss=loss.item(),
                accuracy=np.mean((odds > 0.5) == target).item(),
                epoch=epoch,
                custom_metrics={
                    "throughput": BATCH_SIZE / (time.perf_counter() - began_at),
                    "weight_norm": float(np.linalg.norm(model.weights)),
                },
            )
        monitor.event("epoch_end", epoch=epoch)

    monitor.stop_monitoring()
    print(f"{monitor.run_id} is in {monitor.directory}")


if __name__ == "__main__":
    main()
