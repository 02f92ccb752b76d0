"""Makes the golden files: a store and a journal of the current format, with fixed contents.

Run once for each format version, before it is released: `python -m tests.golden.make`. The files of released
versions are never made again; tests read them for ever after.
"""

import itertools
import shutil
import sqlite3
import tempfile
from pathlib import Path

import numpy as np

from stepscope.journal import layout
from stepscope.journal.folder import JournalName
from stepscope.journal.supply import SegmentSupply
from stepscope.journal.writer import JournalWriter
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore

HERE = Path(__file__).parent
STORE = HERE / "store-v1.sqlite"
JOURNAL = HERE / "journal-v1"

RUN = "golden-5a1ad000"
BEGUN_NS = 1_760_000_000_000_000_000
PAYLOAD = float(np.array([0x7FF8_0000_0000_BEEF], np.uint64).view(np.float64)[0])
LOSS = [0.1, -0.0, float("inf"), float("-inf"), 5e-324, 1.7e308, PAYLOAD, 2.0**53 + 2]
STEPS = [0, 1, 1, 5, 3, 4, 5, 6]
TIMES_NS = [BEGUN_NS + 10**6 * at for at in range(len(STEPS))]
SCHEDULE = [0.001 - at * 1e-7 for at in range(400)]
WATTS = [300.0 + at % 7 for at in range(60)]
LOOSE = [0.25, 0.125]
EVENT = Event("checkpoint", BEGUN_NS + 5, 3, 0, "a1", {"path": "ckpt/3", "ü": [1, None, 2.5]})
ARRAY = np.arange(6, dtype="<f4").reshape(2, 3)
PROCESS = Process(
    run_id=RUN,
    name="golden",
    project="demo",
    segment="a1",
    rank=0,
    host="node1",
    pid=4242,
    role="rank",
    started_ns=BEGUN_NS,
    status="failed",
    reason="ValueError: nan",
    exit_code=1,
    ended_ns=BEGUN_NS + 10**9,
    last_ns=BEGUN_NS + 10**8,
    dropped=3,
    lost=1,
    facts={"argv": ["train.py"], "torch": "2.9"},
)
RESUMED = Process(
    **{**vars(PROCESS), "segment": "b2", "pid": 4243, "started_ns": BEGUN_NS + 2 * 10**9}
    | {"status": "running", "reason": "", "exit_code": None, "ended_ns": None}
)
PROGRESS = (2**63 - 25, 640, 2)

ROWS = [({"loss": value, "lr": 0.5}, step) for value, step in zip(LOSS, STEPS, strict=True)]
OPENING = {
    "run": "golden",
    "project": "demo",
    "host": "node1",
    "role": "rank",
    "started_ns": BEGUN_NS,
    "facts": {"argv": ["train.py"]},
}
END = {"status": "finished", "reason": "", "exit_code": 0}


def make_store(path: Path) -> None:
    """A small store that holds everything a store can hold, sealed and loose."""
    store = SqliteStore(path)
    source = Source(RUN, "a1", 0, "node1")
    gpu = Source(RUN, "a1", 0, "node1", "gpu0", "seconds")
    with store.transaction():
        store.put_process(PROCESS)
        store.put_process(RESUMED)
        store.put_event(RUN, EVENT)
        fields = {"key": "grads", "step": 3, "time": BEGUN_NS, "dtype": "<f4", "shape": [2, 3]}
        store.put_array(RUN, "a1", 0, fields, ARRAY.tobytes())
        _append(store, source, {"loss": LOSS, "accuracy": LOSS[::-1]}, STEPS, TIMES_NS)
        _append(store, gpu, {"watts": WATTS}, [0] * 60, [BEGUN_NS + at * 10**9 for at in range(60)])
        # Twenty short blocks: a pyramid of two levels.
        for at in range(0, 400, 20):
            steps = range(at, at + 20)
            moments = [BEGUN_NS + 10**7 * step for step in steps]
            _append(store, source, {"lr": SCHEDULE[at : at + 20]}, steps, moments)
            store.seal(Source(RUN, "a1", 0, "node1"))
        resumed = Source(RUN, "b2", 0, "node1")
        _append(store, resumed, {"loss": LOOSE}, [7, 8], [BEGUN_NS + 3 * 10**9, BEGUN_NS + 4 * 10**9])
        store.set_progress(*PROGRESS)
    store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(
        "INSERT INTO alert VALUES (1, ?, 'gpu_hot', 'warning', 'GPU 0 is hot', ?, NULL, ?)",
        (RUN, BEGUN_NS, '{"value": 91}'),
    )
    connection.execute(
        "INSERT INTO finding VALUES (1, ?, 'input_bound', 'warning', ?, ?, ?)",
        (RUN, BEGUN_NS, BEGUN_NS + 1, '{"share": 0.4}'),
    )
    connection.close()


def make_journal(path: Path) -> None:
    """A journal with rows, an event, an array and an end, one record a millisecond."""
    ticks = itertools.count(10**6, 10**6)
    with tempfile.TemporaryDirectory() as folder:
        name = JournalName(RUN, "a1", 0, 4242)
        supply = SegmentSupply(
            Path(folder),
            name,
            segment_bytes=4096,
            unread_bytes=1 << 20,
            mapping="always",
            clock=lambda: 0,
            wall_clock=lambda: BEGUN_NS,
        )
        writer = JournalWriter(supply, OPENING, clock=lambda: next(ticks))
        for metrics, step in ROWS:
            writer.append_row(metrics, step)
        writer.append_json(layout.EVENT, {"kind": "checkpoint", "step": 3, "path": "ckpt/3"})
        fields = {"key": "grads", "step": 3, "dtype": "<f4", "shape": [2, 3]}
        writer.append_array(fields, ARRAY.tobytes())
        writer.close(END)
        shutil.copyfile(writer.supply.unread()[0], path)


def _append(store, source, columns, steps, times_ns):
    values = np.array(list(columns.values())).T
    keys = list(columns)
    store.append(source, keys, np.array(steps, np.int64), np.array(times_ns, np.int64), values)


if __name__ == "__main__":
    STORE.unlink(missing_ok=True)
    make_store(STORE)
    make_journal(JOURNAL)
