"""`monitor_ray_cluster`: the resources of a Ray cluster and how much of them is in use."""

from __future__ import annotations

from typing import Any

from stepscope.errors import MissingExtra, StepscopeError


def monitor_ray_cluster() -> dict[str, Any]:
    """The resources of the Ray cluster that this process is connected to.

        ray.init()
        print(monitor_ray_cluster()["cpu_utilization"])

    `cpu_utilization` and `gpu_utilization` are the shares that Ray has given to tasks and actors, from 0 to
    1; 0 in a cluster without any. Raises StepscopeError if there is no connection.
    """
    try:
        import ray  # lazy: an extra
    except ImportError as error:
        raise MissingExtra("ray", "monitor_ray_cluster()") from error
    if not ray.is_initialized():
        raise StepscopeError("This process is not connected to a Ray cluster. Call ray.init() before.")
    total, available = ray.cluster_resources(), ray.available_resources()
    nodes = [node for node in ray.nodes() if node.get("Alive", True)]
    return {
        "cluster_resources": total,
        "available_resources": available,
        "cpu_utilization": _used_share(total, available, "CPU"),
        "gpu_utilization": _used_share(total, available, "GPU"),
        "total_nodes": len(nodes),
    }


def _used_share(total: dict[str, float], available: dict[str, float], resource: str) -> float:
    whole = total.get(resource, 0.0)
    # Ray leaves out a resource of which nothing is available.
    return (whole - available.get(resource, 0.0)) / whole if whole > 0 else 0.0
