"""A run ends with the right status and reason, however its process ends."""

from __future__ import annotations

import signal

import pytest

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
    "sigkill": ("os.kill(os.getpid(), signal.SIGKILL)", "crashed", "ended without a word", -9),
    "segmentation fault": ("import ctypes; ctypes.string_at(0)", "crashed", "Segmentation fault", -11),
    "abort": ("os.abort()", "crashed", "Aborted", -6),
    "os._exit": ("os._exit(3)", "crashed", "ended without a word", 3),
    "exception in a thread": (
        "t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
        "finished",
        "",
        0,
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_ending_is_told_as_it_was(ending: str, run_script, read) -> None:
    code, status, reason, exit_code = ENDINGS[ending]
    result = run_script(BEGIN + "    " + code + "\n")

    run = read("ending")
    assert (run.status, reason in run.reason) == (status, True), run.reason
    assert len(run.series("loss")) == 1
    if exit_code is not None:
        assert result.returncode == exit_code, "watching changed how the process ends"


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
    assert process.wait(timeout=20) == -signal.SIGTERM
    assert read("hung").reason == "terminated by SIGTERM"


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


def test_hooks_are_gone_after_stop(run_script) -> None:
    result = run_script(
        """
        import faulthandler, signal, sys, stepscope
        before = sys.excepthook, faulthandler.is_enabled(), signal.getsignal(signal.SIGTERM)
        with stepscope.TrainingMonitor(run="hook") as monitor:
            pass
        after = sys.excepthook, faulthandler.is_enabled(), signal.getsignal(signal.SIGTERM)
        print(before == after)
        """
    )
    assert result.stdout == "True\n"
