"""Forks never hang, and what a child logs belongs to the child."""

from __future__ import annotations

import pytest

WORKERS = """
    import sys, stepscope, torch
    from torch.utils.data import DataLoader, Dataset

    class Logging(Dataset):
        def __init__(self, monitor): self.monitor = monitor
        def __len__(self): return 64
        def __getitem__(self, index):
            self.monitor.log({"drawn": float(index)}, step=index)
            return torch.tensor(float(index))

    def main():
        monitor = stepscope.TrainingMonitor(run="workers")
        monitor.start_monitoring()
        loader = DataLoader(
            Logging(monitor), batch_size=4, num_workers=4, multiprocessing_context=sys.argv[1]
        )
        for epoch in range(2):
            for batch in monitor.batches(loader):
                monitor.log({"loss": float(batch.mean())})
        monitor.stop_monitoring()

    if __name__ == "__main__":
        main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_loader_workers_log_into_their_own_journals(method: str, tmp_path, start, read) -> None:
    script = tmp_path / "train.py"
    import textwrap

    script.write_text(textwrap.dedent(WORKERS))
    process = start(
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')",
        script,
        method,
    )
    _, err = process.communicate(timeout=100)
    assert process.returncode == 0, err

    run = read("workers")
    assert run.status == "finished"
    assert len(run.series("loss")) == 32
    assert sorted(run.series("drawn").steps.tolist()) == sorted([*range(64)] * 2)
    roles = [process.role for process in run.segments[0].processes]
    assert roles.count("rank") == 1
    assert roles.count("worker") == 8


@pytest.mark.slow
def test_two_hundred_forks_while_threads_log_and_files_roll(run_script, read) -> None:
    result = run_script(
        """
        import os, signal, threading, stepscope
        monitor = stepscope.TrainingMonitor({"recorder": {"segment_bytes": 65536}}, run="forks")
        monitor.start_monitoring()
        stop = threading.Event()
        counts = [0, 0]
        def log_on(which):
            while not stop.is_set():
                monitor.log({f"thread{which}": 1.0}, step=counts[which])
                counts[which] += 1
                stop.wait(0.0005)
        threads = [threading.Thread(target=log_on, args=(n,)) for n in range(2)]
        for thread in threads: thread.start()
        for number in range(200):
            pid = os.fork()
            if pid == 0:
                signal.alarm(10)
                monitor.log({"child": float(number)}, step=number)
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            assert status == 0, status
        stop.set()
        for thread in threads: thread.join()
        monitor.stop_monitoring()
        print(*counts)
        """
    )
    assert result.returncode == 0, result.stderr
    first, second = map(int, result.stdout.split())

    run = read("forks")
    assert run.series("thread0").steps.tolist() == list(range(first))
    assert run.series("thread1").steps.tolist() == list(range(second))
    assert sorted(run.series("child").steps.tolist()) == list(range(200))
    assert run.status == "finished"


@pytest.mark.slow
def test_a_child_that_logs_nothing_leaves_nothing(run_script, read) -> None:
    result = run_script(
        """
        import os, sys, stepscope
        with stepscope.TrainingMonitor(run="silent") as monitor:
            monitor.log({"loss": 1.0})
            child = os.fork()
            if child == 0:
                sys.exit(3)
            os.waitpid(child, 0)
            monitor.log({"loss": 2.0})
        """
    )
    assert result.returncode == 0, result.stderr
    run = read("silent")
    assert run.series("loss").values.tolist() == [1.0, 2.0]
    assert run.status == "finished"
    assert len(run.segments[0].processes) == 1


AT_MODULE_LEVEL = """
import sys, stepscope, torch
from torch.utils.data import DataLoader, Dataset

monitor = stepscope.TrainingMonitor()
if "started" in sys.argv:
    monitor.start_monitoring()
    monitor.event("imported")

class Numbers(Dataset):
    def __len__(self): return 16
    def __getitem__(self, index):
        if "logging" in sys.argv:
            monitor.log({"drawn": float(index)}, step=index)
        return torch.tensor(float(index))

if __name__ == "__main__":
    monitor.start_monitoring()
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1])
    for batch in monitor.batches(loader):
        monitor.log({"loss": float(batch.mean())})
"""


@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(name, marks=pytest.mark.slow) for name in ("spawn", "forkserver"))]
)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["started"], marks=pytest.mark.slow, id="started"),
        pytest.param(["logging"], marks=pytest.mark.slow, id="logging"),
        pytest.param(["started", "logging"], id="started and logging"),
    ],
)
def test_workers_that_import_the_script_again_begin_no_run_of_their_own(
    method: str, words: list[str], tmp_path, folder, start
) -> None:
    import stepscope

    script = tmp_path / "train.py"
    script.write_text(AT_MODULE_LEVEL)
    process = start(
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')",
        script,
        method,
        *words,
    )
    _, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (0, "")

    (run,) = stepscope.open_store(folder).runs()
    assert run.status == "finished"
    (segment,) = run.segments
    assert [process.role for process in segment.processes].count("rank") == 1
    assert len(run.series("loss")) == 4
    if "logging" in words:
        assert sorted(run.series("drawn").steps.tolist()) == list(range(16))
    elif method == "fork":
        assert len(segment.processes) == 1


@pytest.mark.slow
def test_a_training_in_a_spawned_process_is_a_run_where_its_parent_records_nothing(
    tmp_path, folder, start
) -> None:
    import stepscope

    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing, stepscope\n"
        "monitor = stepscope.TrainingMonitor(run='rank')\n"
        "def train():\n"
        "    with monitor:\n"
        "        monitor.log({'loss': 1.0})\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=train)\n"
        "    process.start()\n"
        "    process.join()\n"
    )
    process = start(
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')", script
    )
    assert process.communicate(timeout=120)[1] == ""
    run = stepscope.open_store(folder).run("rank")
    assert (run.status, run.segments[0].processes[0].role) == ("finished", "rank")
