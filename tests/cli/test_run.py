"""`stepscope run`: records any command as a run without changing its behaviour."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import stepscope
from stepscope.reading import Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepscope.schema.run import Process

Command = Callable[..., "subprocess.Popen[bytes]"]
Read = Callable[[str], Run]
Until = Callable[[Callable[[], object]], None]

WAITS_TO_GO_ON = """
import pathlib, time
print("ready", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.01)
pathlib.Path("done").touch()
"""
ANSWERS_SIGNALS = """
import signal, sys
def answer(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(7)
for name in sys.argv[1:]:
    signal.signal(signal.Signals[name], answer)
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def launch(folder: Path) -> Iterator[Command]:
    """Starts `stepscope run`, away from the terminal of whoever runs the tests."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **options: object) -> subprocess.Popen[bytes]:
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen(
            [sys.executable, "-m", "stepscope", "run", *words],
            env={**os.environ, "STEPSCOPE_DIR": str(folder)},
            start_new_session=True,
            **given,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def launcher_of(run: Run) -> Process:
    (process,) = [process for process in run.segments[-1].processes if process.role == "launcher"]
    return process


def console_of(run: Run) -> str:
    return str(run.events("console")[-1].fields["text"])


@pytest.mark.parametrize(
    ("script", "exit_code", "status", "reason"),
    [
        ("exit 0", 0, "finished", ""),
        ("exit 3", 3, "failed", "exit code 3"),
        ("kill -SEGV $$", 139, "crashed", "killed by SIGSEGV"),
    ],
)
def test_the_commands_end_is_ours(
    script: str, exit_code: int, status: str, reason: str, launch: Command, read: Read
) -> None:
    process = launch("--name", "shell", "--project", "p", "--", "sh", "-c", script)
    process.communicate(timeout=120)
    assert process.returncode == exit_code
    run = read("shell")
    assert (run.status, run.reason, run.project) == (status, reason, "p")
    assert launcher_of(run).exit_code == exit_code
    assert "sh" in launcher_of(run).facts["command"]


RAISES = "raise ValueError('label 12 is out of range')"
LEAVES_THE_MONITOR_FIRST = """
import stepscope
monitor = stepscope.TrainingMonitor()
monitor.start_monitoring()
try:
    raise ValueError('label 12 is out of range')
finally:
    monitor.stop_monitoring()
"""
RUN_OF_ITS_OWN = """
import stepscope
with stepscope.TrainingMonitor(run="its own") as monitor:
    raise ValueError('label 12 is out of range')
"""
TRAINS_AND_RAISES = """
import stepscope
with stepscope.TrainingMonitor() as monitor:
    monitor.log({"loss": 1.0})
    raise ValueError('label 12 is out of range')
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [RAISES, LEAVES_THE_MONITOR_FIRST, RUN_OF_ITS_OWN, TRAINS_AND_RAISES])
def test_the_exception_is_the_reason_with_or_without_a_monitor(
    code: str, launch: Command, read: Read
) -> None:
    process = launch("--name", "raising", "--", *python(code))
    process.communicate(timeout=120)
    assert process.returncode == 1
    assert (read("raising").status, read("raising").reason) == (
        "failed",
        "ValueError: label 12 is out of range",
    )


@pytest.mark.slow
def test_an_exit_code_other_than_pythons_is_shown_with_the_exception(launch: Command, read: Read) -> None:
    script = f'{sys.executable} -c "$1"; exit 7'
    launch("--name", "raising", "--", "sh", "-c", script, "sh", RAISES).communicate(timeout=120)
    assert read("raising").reason == "ValueError: label 12 is out of range (exit code 7)"


@pytest.mark.slow
def test_an_exception_that_the_command_survived_is_not_the_reason(launch: Command, read: Read) -> None:
    code = "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()"
    launch("--name", "survived", "--", *python(code)).communicate(timeout=120)
    assert (read("survived").status, read("survived").reason) == ("finished", "")


def test_the_two_streams_pass_through_apart_and_the_input_is_the_commands(launch: Command) -> None:
    process = launch("--", "sh", "-c", "cat; echo err >&2", stdin=subprocess.PIPE)
    out, err = process.communicate(b"from stdin\0", timeout=120)
    assert out == b"from stdin\0"
    assert err.splitlines()[-1] == b"err"


def test_what_is_printed_arrives_at_once(launch: Command) -> None:
    process = launch("--", "sh", "-c", "printf asking; read answer; echo $answer", stdin=subprocess.PIPE)
    assert os.read(process.stdout.fileno(), 100) == b"asking"
    assert process.communicate(b"yes\n", timeout=120)[0] == b"yes\n"


def test_arguments_behind_the_command_are_the_commands(launch: Command) -> None:
    process = launch("--", *python("import sys; print(sys.argv[1:])", "--name", "x", "--", "a b", "$HOME"))
    assert process.communicate(timeout=120)[0] == b"['--name', 'x', '--', 'a b', '$HOME']\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_to_the_launcher_reaches_the_command(name: str, launch: Command, read: Read) -> None:
    process = launch("--name", "signalled", "--", *python(ANSWERS_SIGNALS, name))
    assert process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.Signals[name])
    assert process.communicate(timeout=120)[0] == f"got {name}\n".encode()
    assert process.returncode == 7
    assert read("signalled").reason == "exit code 7"


@pytest.mark.slow
def test_a_command_killed_by_a_forwarded_signal_is_reported_as_such(launch: Command, read: Read) -> None:
    process = launch("--name", "ended", "--", "sh", "-c", "echo ready; exec sleep 60")
    process.stdout.readline()
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 143
    assert read("ended").reason == "killed by SIGTERM"


@pytest.mark.slow
def test_ten_megabytes_pass_through_complete(launch: Command, read: Read) -> None:
    code = "import sys\nfor n in range(100_000): sys.stdout.write(f'{n:08d} {\"x\" * 91}\\n')"
    process = launch("--name", "wordy", "--", *python(code))
    out, _ = process.communicate(timeout=120)
    expected = "".join(f"{n:08d} {'x' * 91}\n" for n in range(100_000)).encode()
    assert hashlib.sha256(out).digest() == hashlib.sha256(expected).digest()
    kept = console_of(read("wordy")).splitlines()
    assert len(kept) == 200
    assert kept[-1].startswith("00099999 ")


@pytest.mark.slow
def test_binary_garbage_passes_through_untouched_and_harms_nothing(launch: Command, read: Read) -> None:
    code = "import random, sys; sys.stdout.buffer.write(random.Random(1).randbytes(300_000))"
    process = launch("--name", "garbage", "--", *python(code))
    out, _ = process.communicate(timeout=120)
    whole = subprocess.run(python(code), capture_output=True, check=True).stdout
    assert out == whole
    assert read("garbage").status == "finished"
    assert len(console_of(read("garbage")).encode()) <= 64 * 1024


@pytest.mark.slow
def test_secrets_on_the_console_and_in_arguments_are_not_recorded(
    launch: Command, folder: Path, read: Read
) -> None:
    code = (
        "import sys; print('key sk-canary0123456789abcdef'); print('https://me:canary@host', file=sys.stderr)"
    )
    process = launch("--name", "secretive", "--", *python(code, "--password", "canary", "--api-key=canary"))
    out, err = process.communicate(timeout=120)
    assert b"sk-canary0123456789abcdef" in out
    assert b"me:canary@host" in err
    assert "[redacted:key]" in console_of(read("secretive"))
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"redacted" in kept
    assert b"canary" not in kept


def test_a_monitor_inside_joins_the_run_and_its_segment(launch: Command, read: Read, folder: Path) -> None:
    code = "import stepscope\nwith stepscope.TrainingMonitor() as m:\n  for i in range(5): m.log({'loss': i})"
    process = launch("--name", "outer", "--project", "p", "--", *python(code))
    process.communicate(timeout=120)
    run = read("outer")
    assert [run.name for run in stepscope.open_store(folder).runs()] == ["outer"]
    assert (run.status, run.project, len(run.segments)) == ("finished", "p", 1)
    assert {process.role for process in run.segments[0].processes} == {"launcher", "rank"}
    assert run.series("loss").values.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_run_that_its_script_named_is_found_by_the_name_that_was_printed_too(
    launch: Command, folder: Path
) -> None:
    code = "import stepscope\nwith stepscope.TrainingMonitor(run='own') as m: m.log({'loss': 1})"
    _, err = launch("--", *python(code)).communicate(timeout=120)
    [run] = stepscope.open_store(folder).runs()
    printed = err.decode().partition("Run ")[2].partition(" in ")[0]
    assert (run.name, printed != "own") == ("own", True)
    assert stepscope.open_store(folder).run(printed).id == run.id


@pytest.mark.slow
def test_a_name_the_script_gives_itself_gives_way_to_that_of_the_command(launch: Command, read: Read) -> None:
    code = "import stepscope\nwith stepscope.TrainingMonitor(run='own') as m: m.log({'loss': 1})"
    launch("--name", "outer", "--", *python(code)).communicate(timeout=120)
    assert read("outer").status == "finished"
    assert len(read("outer").series("loss")) == 1


@pytest.mark.slow
def test_a_run_without_a_name_is_called_after_the_script(
    launch: Command, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "fit.py").write_text("print('hello')")
    _, err = launch("--", sys.executable, "fit.py").communicate(timeout=120)
    (run,) = stepscope.open_store(folder).runs()
    assert run.name.startswith("fit-")
    assert run.name in err.decode()


def test_killing_the_launcher_leaves_the_command_running_and_the_run_crashed(
    launch: Command, read: Read, tmp_path: Path, until: Until
) -> None:
    process = launch("--name", "orphaned", "--", *python(WAITS_TO_GO_ON))
    process.stdout.readline()
    process.kill()
    process.wait()
    until(lambda: read("orphaned").status == "crashed")
    (tmp_path / "go").touch()
    until((tmp_path / "done").exists)
    assert read("orphaned").status == "crashed"


def test_a_killed_launcher_leaves_the_console_as_it_was_noted_last(
    start, read: Read, folder: Path, until: Until
) -> None:
    process = start(
        """
        import sys
        from pathlib import Path
        from stepscope.config.sections import Settings
        from stepscope.launcher.observe import Observed
        command = ["sh", "-c", "echo one; echo two; exec sleep 20"]
        Observed(command, Path(sys.argv[1]), Settings(run="noted"), record_interval_s=0.05).run(recorded=True)
        """,
        folder,
        start_new_session=True,
    )
    process.stdout.readline()
    until(lambda: (folder / "store.sqlite").exists() and read("noted").events("console"))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: read("noted").status == "crashed")
    assert console_of(read("noted")) == "one\ntwo"


def test_where_nothing_can_be_recorded_the_command_runs_with_one_message(
    launch: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    process = launch("--store", str(tmp_path / "file" / "store"), "--", "sh", "-c", "echo out; exit 4")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (4, b"out\n")
    assert err.decode().count("\n") == 1
    assert "Nothing is recorded" in err.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["--", "no-such-command"], 127, "no-such-command"),
        (["--", "notes.txt"], 127, "./notes.txt"),
        (["--", "./notes.txt"], 126, "chmod +x ./notes.txt"),
        (["--", "./broken"], 126, "cannot be started"),
        (["--"], 2, "stepscope run -- python train.py"),
        ([], 2, "stepscope run -- python train.py"),
    ],
)
def test_a_command_that_cannot_start_has_the_shells_exit_code(
    words: list[str], exit_code: int, said: str, launch: Command, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "broken").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "broken").chmod(0o755)
    process = launch(*words)
    _, err = process.communicate(timeout=120)
    assert process.returncode == exit_code
    assert said in err.decode()
    assert "Traceback" not in err.decode()


@pytest.mark.slow
def test_a_process_the_command_leaves_behind_is_not_waited_for(launch: Command) -> None:
    process = launch("--", "sh", "-c", "sleep 20 & echo $!")
    left_behind = int(process.stdout.readline())
    process.wait(timeout=120)
    assert process.returncode == 0
    os.kill(left_behind, signal.SIGTERM)


@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_command_as_a_pipe_would(launch: Command) -> None:
    process = launch("--", "yes")
    os.read(process.stdout.fileno(), 10)
    process.stdout.close()
    process.stdout = None
    process.wait(timeout=120)
    assert process.returncode == 128 + signal.SIGPIPE
