"""Many writers and many keys in one run."""

from __future__ import annotations

import pytest

import stepscope


@pytest.mark.parametrize(
    ("writers", "records"),
    [pytest.param(8, 3000, id="sampled"), pytest.param(32, 10_000, id="all", marks=pytest.mark.slow)],
)
def test_many_processes_write_one_run_while_somebody_reads(writers: int, records: int, start, folder) -> None:
    code = """
        import sys, stepscope
        with stepscope.TrainingMonitor(run="crowd") as monitor:
            for step in range(int(sys.argv[1])):
                monitor.log({"loss": step * 0.5}, step=step)
    """
    launch = {"WORLD_SIZE": str(writers), "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    ranks = [start(code, records, environment={**launch, "RANK": str(n)}) for n in range(writers)]
    while any(rank.poll() is None for rank in ranks):
        try:
            run = stepscope.open_store(folder).run("crowd")
            run.series("loss")
            run.buckets("loss", 100)
        except stepscope.errors.NotFound:
            continue  # not begun yet; "database is locked" would be another error, and fail
    for rank in ranks:
        _, err = rank.communicate()
        assert rank.returncode == 0, err

    run = stepscope.open_store(folder).run("crowd")
    for number in range(writers):
        assert run.series("loss", rank=number).steps.tolist() == list(range(records))
    assert len(run.segments) == 1
    assert run.status == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("keys", [60_000, 1_000_000])
def test_a_flood_of_keys_takes_neither_memory_nor_the_run(keys: int, run_script, read) -> None:
    result = run_script(
        """
        import resource, sys, stepscope
        keys = int(sys.argv[1])
        monitor = stepscope.TrainingMonitor(run="flood")
        monitor.start_monitoring()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(keys):
            monitor.log({f"key{number:07}": 1.0, "loss": float(number)}, step=number)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        print(monitor.get_performance_summary()["dropped"])
        monitor.stop_monitoring()
        """,
        keys,
    )
    assert result.returncode == 0, result.stderr
    grown_kib, dropped = map(int, result.stdout.split())
    assert grown_kib < 300 * 1024
    assert dropped == keys - 49_999
    assert result.stderr.count("different keys") == 1

    run = read("flood")
    assert len(run.series("loss")) == keys
    assert run.segments[0].processes[0].dropped == dropped
    page = run.keys(limit=100)
    assert [info.key for info in page][:2] == ["key0000000", "key0000001"]
    assert run.keys(limit=1, after=page[-1].key)[0].key == "key0000100"


@pytest.mark.slow
def test_one_call_with_very_many_keys_is_kept_whole(run_script, read) -> None:
    result = run_script(
        """
        import stepscope
        with stepscope.TrainingMonitor(run="wide") as monitor:
            for step in range(3):
                norms = {f"layer.{n}.weight.gradient_norm.of.a.very.long.name": n for n in range(20_000)}
                monitor.log(norms, step=step)
        """
    )
    assert result.returncode == 0, result.stderr
    run = read("wide")
    assert len(run.keys()) == 20_000
    assert (
        run.series("layer.19999.weight.gradient_norm.of.a.very.long.name").values.tolist() == [19_999.0] * 3
    )
