"""Each metric has one name in another program, which that program accepts, and no two share one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepscope.mirrors.metric_names import MetricNames, accepted_by_mlflow, mlflow_name, plain_name
from stepscope.schema.series import Source

HOST = Source("run", "s1", None, "node1", axis="seconds")
RANK = Source("run", "s1", 0, "node1")
GPU = Source("run", "s1", None, "node1", "GPU-b", "seconds")


@given(st.text(max_size=400))
@example("")
@example(".")
@example("..")
@example("/a//b/../c/")
@example("a" * 251)
@example("損失/loss")
@example("a/...")
def test_mlflow_accepts_every_name(key: str) -> None:
    from mlflow.utils.validation import _validate_metric

    _validate_metric(accepted_by_mlflow(key or "_"), 1.0, 0, 0)


@given(st.lists(st.text(alphabet="ab@%/.", max_size=4), unique=True, max_size=30))
def test_no_two_metrics_share_a_name(keys: list[str]) -> None:
    names = MetricNames(mlflow_name, {}, lambda name: accepted_by_mlflow(name or "_"))
    sources = [RANK, Source("run", "s1", 1, "node1"), Source("run", "s1", 1, "node1", "worker 0")]
    known = {(source, key): names.of(source, key) for source in sources for key in keys}
    assert len({name.name for name in known.values() if name}) == len(known)
    assert all(names.of(source, key) == name for (source, key), name in known.items())


@pytest.mark.parametrize(
    ("source", "key", "plain", "mlflow"),
    [
        (RANK, "train/loss", ("train/loss", 1.0), ("train/loss", 1.0)),
        (
            GPU,
            "gpu/utilization_ratio",
            ("system/gpu3/util_percent", 100.0),
            ("system/gpu_3_utilization_percentage", 100.0),
        ),
        (
            GPU,
            "gpu/memory_used_bytes",
            ("system/gpu3/memory_used_bytes", 1.0),
            ("system/gpu_3_memory_usage_megabytes", 1e-6),
        ),
        (GPU, "gpu/temperature_celsius", ("system/gpu3/temperature_celsius", 1.0), None),
        (
            HOST,
            "cpu/utilization_ratio",
            ("system/cpu/util_percent", 100.0),
            ("system/cpu_utilization_percentage", 100.0),
        ),
        (HOST, "cpu/load_1m", ("system/cpu/load_1m", 1.0), None),
    ],
)
def test_a_metric_has_the_spelling_of_its_program(source, key, plain, mlflow) -> None:
    for name_of, expected in ((plain_name, plain), (mlflow_name, mlflow)):
        name = MetricNames(name_of, {"GPU-b": 3}).of(source, key)
        assert (None if name is None else (name.name, name.factor)) == expected


def test_the_disk_of_the_root_has_the_name_that_mlflow_uses() -> None:
    names = MetricNames(mlflow_name, {})
    disks = [Source("run", "s1", None, "node1", path, "seconds") for path in ("/", "/data/sets")]
    assert [names.of(disk, "disk/used_ratio").name for disk in disks] == [
        "system/disk_usage_percentage",
        "system/disk_usage_percentage_data_sets",
    ]


def test_the_machines_of_other_hosts_are_told_apart() -> None:
    names = MetricNames(plain_name, {})
    hosts = [Source("run", "s1", None, host, axis="seconds") for host in ("node1", "node2")]
    assert [names.of(host, "cpu/load_1m").name for host in hosts] == [
        "system/cpu/load_1m",
        "node2/system/cpu/load_1m",
    ]
