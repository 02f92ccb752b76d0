"""The measurements every peer goes through, one function each."""

import os
import select
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import environments
from benchmarks.loops import ACKNOWLEDGEMENT
from benchmarks.processes import Tree
from benchmarks.session import Session

START_LIMIT_S = 60.0
MIN_ROOM, MAX_GROWTH = 4.0, 10.0
RESCUE_S = 5.0
"""How long helpers may go on after the trainer was killed, to save what they hold."""


@dataclass(frozen=True)
class Effort:
    """How long and how large a measurement may be."""

    paced_s: float
    flat_s: float
    most_rows: int
    pilot_rows: int
    read_points: int
    pilot_points: int
    read_s: float
    crash_s: float
    imports: int


FULL = Effort(
    paced_s=5.0,
    flat_s=6.0,
    most_rows=500_000,
    pilot_rows=1_000,
    read_points=1_000_000,
    pilot_points=10_000,
    read_s=8.0,
    crash_s=1.5,
    imports=5,
)
QUICK = Effort(
    paced_s=1.0,
    flat_s=1.0,
    most_rows=200_000,
    pilot_rows=200,
    read_points=1_000_000,
    pilot_points=2_000,
    read_s=2.0,
    crash_s=0.5,
    imports=2,
)


def paced(session: Session, effort: Effort) -> None:
    """Time of a log call, slowdown of the loop, memory of the training process."""
    sample = session.run("paced", session.fresh("paced"), budget_s=effort.paced_s)
    session.add("paced", sample)


def flat(session: Session, effort: Effort) -> None:
    """Points per second, CPU of the tree, bytes on disk."""
    fixed = session.run("flat", session.fresh("flat"), rows=1)
    if "flat" not in session.sizes:
        session.sizes["flat"] = _rows_within_budget(session, effort, fixed["wall_s"])
    sample = session.run("flat", session.fresh("flat"), rows=session.sizes["flat"])
    for name in ("cpu_s", "disk_bytes", "wall_s"):
        sample[f"fixed_{name}"] = fixed[name]
    session.add("flat", sample)


def _rows_within_budget(session: Session, effort: Effort, fixed_s: float) -> int:
    """Log ever more rows while that takes a small part of the budget."""
    rows = 0
    larger = effort.pilot_rows
    while larger > rows:
        rows = larger
        pilot = session.run("flat", session.fresh("flat"), rows=rows)
        spent_s = max(pilot["wall_s"] - fixed_s, pilot["log_s"] / 2)
        larger = _grown(rows, effort.most_rows, effort.flat_s / spent_s)
    return rows


def _grown(size: int, most: int, room: float) -> int:
    """Grow a size while there is room for several times as much."""
    return size if room < MIN_ROOM else min(int(size * min(room / 2, MAX_GROWTH)), most)


def read(session: Session, effort: Effort) -> None:
    """Read a long series in a fresh process."""
    if "read" not in session.sizes:
        session.sizes["read"] = _fill_for_read(session, effort)
    sample = session.run("read", session.folder("read"), points=session.sizes["read"])
    session.add("read", sample)


def _fill_for_read(session: Session, effort: Effort) -> int:
    """Write ever more points while writing and reading them stays far within the budget."""
    points = 0
    larger = effort.pilot_points
    while larger > points:
        points = larger
        filled = session.run("fill", session.fresh("read"), points=points)
        probed = session.run("read", session.folder("read"), points=points)
        spent_s = max(filled["wall_s"], probed["read_s"])
        larger = _grown(points, effort.read_points, effort.read_s / spent_s)
    return points


KILLS: dict[str, Callable[[Tree], None]] = {
    "trainer": Tree.kill_trainer,
    "group": Tree.kill_group,
    "tree": Tree.kill_tree,
}


def crash(session: Session, effort: Effort) -> None:
    """Steps acknowledged before a kill -9 that cannot be read back."""
    for kind, kill in KILLS.items():
        folder = session.fresh(f"crash-{kind}")
        acknowledged = _log_until_killed(session, kind, kill, effort.crash_s)
        sample = session.run("recover", folder, acknowledged=acknowledged)
        session.add(f"crash_{kind}", sample)


def _log_until_killed(session: Session, kind: str, kill: Callable[[Tree], None], run_s: float) -> int:
    reading, writing = os.pipe()
    folder = session.folder(f"crash-{kind}")
    tree = session.launch("crash", folder, pass_fds=(writing,), acknowledge=writing)
    os.close(writing)
    os.set_blocking(reading, False)
    acknowledged_bytes = 0
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        ready, _, _ = select.select([reading], [], [], 0.01)
        received = os.read(reading, 1 << 16) if ready else b""
        if ready and not received:
            break
        if received and not acknowledged_bytes:
            deadline = time.monotonic() + run_s
        acknowledged_bytes += len(received)
    kill(tree)
    tree.wait_for_trainer(RESCUE_S)
    acknowledged_bytes += _bytes_left(reading)
    os.close(reading)
    tree.wait_for_helpers(RESCUE_S)
    if not acknowledged_bytes:
        message = environments.last_line(tree.log.read_text(errors="replace"))
        raise environments.UnavailableError(f"crash: never logged a step: {message}")
    return acknowledged_bytes // ACKNOWLEDGEMENT.size


def _bytes_left(reading: int) -> int:
    count = 0
    try:
        while received := os.read(reading, 1 << 16):
            count += len(received)
    except BlockingIOError:
        pass
    return count


def import_time(session: Session, effort: Effort) -> None:
    """Time to import the peer in a fresh interpreter, over one that imports nothing."""
    folder = session.fresh("import")
    environment = environments.variables(session.peer, folder / "data", folder / "home")

    def interpreter_s(statement: str) -> float:
        began = time.perf_counter()
        command = [str(session.python), "-c", statement]
        ended = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        if ended.returncode != 0:
            raise environments.UnavailableError(f"import: {environments.last_line(ended.stderr)}")
        return time.perf_counter() - began

    if not session.samples.get("import"):
        interpreter_s(session.peer.imports)
    pairs = [(interpreter_s("pass"), interpreter_s(session.peer.imports)) for _ in range(effort.imports)]
    bare_s, with_import_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    session.add("import", {"import_ms": (with_import_s - bare_s) * 1000})


MEASUREMENTS: dict[str, Callable[[Session, Effort], None]] = {
    "paced": paced,
    "flat": flat,
    "read": read,
    "crash": crash,
    "import": import_time,
}
