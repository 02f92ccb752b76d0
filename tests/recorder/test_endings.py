"""A run ends with the right status and reason, however its process ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import stepscope
from stepscope.recorder.exit.exit_reason import describe
from stepscope.schema import redact as redact_module

BEGIN = """
    import os, signal, sys, threading, time, stepscope
    monitor = stepscope.TrainingMonitor(run="ending")
    monitor.start_monitoring()
    monitor.log({"loss": 1.0})
"""

ENDINGS = {
    "falls off the end": ("pass", "finished", "", 0),
    "stop": ("monitor.stop_monitoring()", "finished", "", 0),
    "sys.exit": ("sys.exit(0)", "finished", "", 0),
    "exception": ("raise ValueError('shapes differ')", "failed", "ValueError: shapes differ", 1),
    "exception in the block": (
        "\n    with stepscope.TrainingMonitor(run='block') as m:\n        raise KeyError('x')",
        "failed",
        "KeyError: 'x'",
        1,
    ),
    "interrupt": (
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
        "failed",
        "interrupted by SIGINT",
        None,
    ),
    "sigterm": (
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)",
        "failed",
        "terminated by SIGTERM",
        -15,
    ),
    "sigkill": ("os.kill(os.getpid(), signal.SIGKILL)", "crashed", "was killed (no error message)", -9),
    "segmentation fault": ("import ctypes; ctypes.string_at(0)", "crashed", "Segmentation fault", -11),
    "abort": ("os.abort()", "crashed", "Aborted", -6),
    "os._exit(3)": ("os._exit(3)", "failed", "exit code 3", 3),
    "os._exit(0)": ("os._exit(0)", "finished", "", 0),
    "os._exit in a thread": (
        "threading.Thread(target=os._exit, args=(4,)).start(); time.sleep(5)",
        "failed",
        "exit code 4",
        4,
    ),
    "sys.exit(256), which is 0": ("sys.exit(256)", "finished", "", 0),
    "sys.exit(2 ** 64), which is 255": ("sys.exit(2 ** 64)", "failed", "exit with 18446744073709551616", 255),
    "sys.exit(3)": ("sys.exit(3)", "failed", "exit with 3", 3),
    "sys.exit with a text": ("sys.exit('no data')", "failed", "exit with 'no data'", 1),
    "sys.exit that is caught": (
        "\n    try: sys.exit(3)\n    except SystemExit: monitor.log({'more': 1.0})",
        "finished",
        "",
        0,
    ),
    "sys.exit in a thread": (
        "t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()",
        "finished",
        "",
        0,
    ),
    "a daemon thread goes on": (
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "finished",
        "",
        0,
    ),
    "exec": ("os.execv('/bin/true', ['true'])", "finished", "replaced itself by another program (exec)", 0),
    "exec by the search path": (
        "os.execvp('true', ['true'])",
        "finished",
        "replaced itself by another program (exec)",
        0,
    ),
    "exec that fails": (
        """
    with open("no-program", "wb") as file: file.write(bytes(9))
    os.chmod("no-program", 0o755)
    try: os.execv("no-program", ["x"])
    except OSError: sys.exit(5)
""",
        "failed",
        "exit with 5",
        5,
    ),
    "exec of a forked child": (
        "\n    child = os.fork() or os.execv('/bin/true', ['true'])\n    os.waitpid(child, 0)",
        "finished",
        "",
        0,
    ),
    "os._exit of a forked child": (
        "\n    child = os.fork()\n    if child == 0: os._exit(7)\n    os.waitpid(child, 0)",
        "finished",
        "",
        0,
    ),
    "exception in a thread": (
        "t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
        "finished",
        "",
        0,
    ),
}


@pytest.fixture(scope="module")
def one_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store folder for all endings: one agent serves them, where each would start its own."""
    return tmp_path_factory.mktemp("endings") / "store"


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_ending_is_recorded_as_it_was(ending: str, one_folder: Path, run_script) -> None:
    code, status, reason, exit_code = ENDINGS[ending]
    begin = BEGIN.replace('run="ending"', f"run={ending!r}")
    result = run_script(begin + "    " + code + "\n", environment={"STEPSCOPE_DIR": str(one_folder)})

    run = stepscope.open_store(one_folder).run(ending)
    assert (run.status, reason in run.reason) == (status, True), run.reason
    assert len(run.series("loss")) == 1
    if exit_code is not None:
        assert result.returncode == exit_code, "watching changed how the process ends"


def test_every_open_run_has_its_end_before_the_exit_waits_for_an_agent(run_script, read) -> None:
    result = run_script(
        """
        import os, signal, stepscope
        from stepscope.recorder.agent_watch import AgentWatch
        monitors = [stepscope.TrainingMonitor(run=f"open-{number}") for number in range(3)]
        for monitor in monitors:
            monitor.log({"loss": 1.0})
        AgentWatch._wake_agent = lambda agent: os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert result.returncode == -signal.SIGKILL
    assert [read(f"open-{number}").status for number in range(3)] == ["finished"] * 3


def test_an_exec_that_fails_leaves_the_run_recording(run_script, read) -> None:
    result = run_script(
        BEGIN
        + """
    with open("no-program", "wb") as file: file.write(bytes(100))
    os.chmod("no-program", 0o755)
    try:
        os.execv("no-program", ["x"])
    except OSError:
        pass
    monitor.log({"loss": 2.0}, step=1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    assert result.returncode == -signal.SIGKILL
    run = read("ending")
    assert run.series("loss").values.tolist() == [1.0, 2.0]
    assert run.status == "crashed"


@pytest.mark.slow
def test_a_script_that_executes_itself_again_has_a_segment_for_each_time(run_script, read) -> None:
    result = run_script(
        """
        import os, sys, stepscope
        monitor = stepscope.TrainingMonitor(run="again")
        monitor.start_monitoring()
        monitor.log({"loss": float(os.environ.get("ROUND", 0))})
        if os.environ.get("ROUND", "0") < "2":
            os.environ["ROUND"] = str(int(os.environ.get("ROUND", 0)) + 1)
            os.execv(sys.executable, sys.orig_argv)
        """
    )
    assert result.returncode == 0, result.stderr
    run = read("again")
    exec_reason = "replaced itself by another program (exec)"
    assert [part.reason for part in run.segments] == [exec_reason, exec_reason, ""]
    assert run.series("loss").values.tolist() == [0.0, 1.0, 2.0]
    assert run.status == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU"])
def test_a_signal_that_ends_the_process_is_named(name: str, one_folder: Path, run_script) -> None:
    begin = BEGIN.replace('run="ending"', f"run={name!r}")
    result = run_script(
        begin + f"    os.kill(os.getpid(), signal.{name}); time.sleep(5)\n",
        environment={"STEPSCOPE_DIR": str(one_folder)},
    )
    assert result.returncode == -signal.Signals[name]
    run = stepscope.open_store(one_folder).run(name)
    assert (run.status, run.reason) == ("failed", f"terminated by {name}")


@pytest.mark.slow
def test_a_handler_set_during_the_run_is_still_there_after_it(run_script) -> None:
    result = run_script(
        """
        import os, signal, stepscope
        with stepscope.TrainingMonitor(run="hook") as monitor:
            for number in (signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, lambda *_: print("mine", flush=True))
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)
        """
    )
    assert (result.returncode, result.stdout) == (0, "mine\nmine\n")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [("pass", "finished", ""), ("raise ValueError('x')", "failed", "1"), ("os._exit(3)", "failed", "3")],
)
def test_a_training_in_a_process_of_multiprocessing_ends_as_it_did(
    method: str, code: str, status: str, reason: str, tmp_path, start, read
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing, os, sys, stepscope\n"
        "def train():\n"
        "    monitor = stepscope.TrainingMonitor(run='ending')\n"
        "    monitor.start_monitoring()\n"
        "    monitor.log({'loss': 1.0})\n"
        f"    {code}\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context(sys.argv[1]).Process(target=train)\n"
        "    process.start()\n"
        "    process.join()\n"
    )
    process = start(
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')",
        script,
        method,
    )
    process.communicate(timeout=100)
    run = read("ending")
    assert run.status == status
    assert reason in run.reason


@pytest.mark.slow
def test_a_handler_of_the_users_own_decides_what_sigterm_means(run_script, read) -> None:
    result = run_script(
        """
        import os, signal, sys, stepscope
        def save_and_leave(*_):
            monitor.log({"saved": 1.0})
            sys.exit(0)
        signal.signal(signal.SIGTERM, save_and_leave)
        monitor = stepscope.TrainingMonitor(run="ending")
        monitor.start_monitoring()
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000): pass
        """
    )
    assert result.returncode == 0, result.stderr
    run = read("ending")
    assert run.status == "finished"
    assert len(run.series("saved")) == 1


def test_sigterm_ends_a_process_that_hangs_in_a_library_at_once(start, read) -> None:
    process = start(
        """
        import ctypes, stepscope
        monitor = stepscope.TrainingMonitor(run="hung")
        monitor.start_monitoring()
        monitor.log({"loss": 1.0})
        print("ready", flush=True)
        ctypes.PyDLL(None).sleep(60)
        """
    )
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == -signal.SIGTERM
    assert read("hung").reason == "terminated by SIGTERM"


@pytest.mark.slow
def test_the_users_exception_hook_still_runs(run_script) -> None:
    result = run_script(
        """
        import sys, stepscope
        sys.excepthook = lambda kind, error, trace: print("mine:", error)
        monitor = stepscope.TrainingMonitor(run="hook")
        monitor.start_monitoring()
        raise ValueError("once")
        """
    )
    assert result.stdout == "mine: once\n"
    assert result.stderr == ""


@pytest.mark.slow
def test_an_exception_hook_that_is_set_later_hides_no_failure(run_script, read) -> None:
    result = run_script(
        """
        import sys, stepscope
        monitor = stepscope.TrainingMonitor(run="hook")
        monitor.log({"loss": 1.0})
        sys.excepthook = lambda kind, error, trace: print("mine:", error)
        raise ValueError("once")
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (1, "mine: once\n", "")
    assert (read("hook").status, read("hook").reason) == ("failed", "ValueError: once")


def test_hooks_are_gone_after_stop(run_script) -> None:
    result = run_script(
        """
        import faulthandler, gc, os, signal, sys, stepscope
        def hooks():
            return (
                sys.excepthook, faulthandler.is_enabled(), signal.getsignal(signal.SIGTERM),
                os._exit, os.execv, os.execve, sys.exit, len(os.listdir("/proc/self/fd")),
            )
        before = hooks()
        with stepscope.TrainingMonitor({"agent": {"mode": "none"}}, run="hook") as monitor:
            pass
        del monitor
        gc.collect()
        print(before == hooks())
        """
    )
    assert result.stdout == "True\n"


def test_a_secret_at_the_end_of_a_long_message_is_not_in_the_reason() -> None:
    class LongError(Exception):
        def __str__(self) -> str:
            return " " * 10 + "x " * 140 + "password=hunter2hunter2hunter2" + " and more" * 100_000

    said = describe(LongError())
    assert said.startswith("LongError: x x x")
    assert len(said) < 400
    assert "hunter2" not in said


def test_the_reason_of_a_failure_is_redacted_no_further_than_it_is_kept(monkeypatch) -> None:
    lengths = []

    def redact(text: str) -> str:
        lengths.append(len(text))
        return text

    monkeypatch.setattr(redact_module, "redact_text", redact)
    describe(ValueError("x y " * 1_000_000))
    assert max(lengths) < 10_000
