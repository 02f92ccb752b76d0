"""What a Ray cluster has and what is in use, recorded beside the loss (needs ray).

python examples/ray_cluster.py
stepscope show ray-cluster
"""

import logging
import sys

from stepscope import TrainingMonitor, monitor_ray_cluster

try:
    import ray
except ImportError:
    sys.exit("This example needs Ray: pip install 'stepscope[ray]'")


class Learner:
    """Holds one processor while it lives."""

    def step(self, number: int) -> float:
        """Stands for a training step: returns a loss."""
        return 1 / (number + 1)


def main() -> None:
    """Trains in an actor of a cluster of two processors on this machine."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    learner = ray.remote(num_cpus=1)(Learner).remote()
    with TrainingMonitor(run="ray-cluster", project="examples") as monitor:
        for number in range(20):
            loss = ray.get(learner.step.remote(number))
            used = monitor_ray_cluster()["cpu_utilization"]
            monitor.log_training_step(loss=loss, custom_metrics={"ray/cpu_utilization": used})
    cluster = monitor_ray_cluster()
    print(f"{cluster['total_nodes']} node, {cluster['cpu_utilization']:.0%} of its processors in use")
    ray.shutdown()


if __name__ == "__main__":
    main()
