"""`monitor_ray_cluster` on a cluster of this machine."""

from __future__ import annotations

import sys
import threading

import pytest

import stepscope
from stepscope.errors import MissingExtra, StepscopeError


def test_ray_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'stepscope\[ray\]'"):
        stepscope.monitor_ray_cluster()


@pytest.mark.slow
def test_a_ray_cluster_reports_total_and_used_resources() -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    with pytest.raises(StepscopeError, match=r"Call ray.init\(\) before"):
        stepscope.monitor_ray_cluster()
    ray.init(num_cpus=4, num_gpus=0, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        before = stepscope.monitor_ray_cluster()
        assert before["cluster_resources"]["CPU"] == 4
        assert (before["cpu_utilization"], before["gpu_utilization"], before["total_nodes"]) == (0.0, 0.0, 1)

        @ray.remote(num_cpus=3)
        class Learner:
            def ready(self) -> int:
                return 1

        learner = Learner.remote()
        assert ray.get(learner.ready.remote()) == 1
        tick = threading.Event()
        while stepscope.monitor_ray_cluster()["cpu_utilization"] != 0.75:
            tick.wait(0.05)  # the head learns of it within a second
        del learner
    finally:
        ray.shutdown()
