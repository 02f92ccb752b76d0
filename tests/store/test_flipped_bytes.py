"""A byte that has changed on the disk is noticed: right values or a clear error, never anything else."""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stepscope.cli.main import main
from stepscope.errors import StoreError
from stepscope.reading import Run, Runs
from stepscope.schema.alert import Notice
from stepscope.schema.record import Event
from stepscope.schema.series import Source
from stepscope.store.base import OpenAlert
from stepscope.store.sqlite import SqliteReader, SqliteStore
from tests.store.run_samples import process

RUNS = {"one": 5000, "two": 300, "three": 20}
"""Runs and how many rows each has: sealed and loose, loose alone, hardly any."""


def fill(store: SqliteStore) -> None:
    draw = np.random.default_rng(1)
    for run_id, rows in RUNS.items():
        with store.transaction():
            for rank in (0, 1):
                store.put_process(process(run_id=run_id, rank=rank, pid=100 + rank))
                steps = np.arange(rows)
                values = np.c_[draw.normal(size=rows), np.full(rows, 0.5), np.arange(rows) * 1.0]
                source = Source(run_id, process().segment, rank, process().host)
                times = 10**18 + steps * 1000 + draw.integers(0, 900, rows)
                store.append(source, ["loss", "lr", "count"], steps, times, values)
            for number in range(12):
                kind = ("epoch", "checkpoint")[number % 2]
                store.put_event(run_id, Event(kind, 10**18 + number, number, 0, "a", {"number": number}))
                store.alert_book.fire(
                    OpenAlert(run_id, "rule", "warning", "message", 10**18 + number, {"value": number})
                )
                text = f"{run_id} {number}"
                notice = Notice(text, "firing", "title", run_id, "demo", "node1", 10**18 + number, ())
                store.alert_book.post("console", notice)
                finding = {"id": "input.exposed_wait", "key": text, "severity": "warning"}
                store.put_finding(run_id, finding, 10**18 + number)
            store.alert_book.delivered(1, 10**18)
            store.clear_finding(run_id, f"{run_id} 3", 10**18)


def answers(runs: Runs) -> dict[str, Callable[[], object]]:
    """All that is asked of a store, each to be asked on its own."""

    def points(run: Run, key: str, **labels: int) -> object:
        series = run.series(key, **labels)
        return series.steps.tobytes(), series.times_ns.tobytes(), series.values.tobytes()

    def buckets(run: Run, key: str, **bounds: int) -> object:
        drawn = run.buckets(key, 50, **bounds)
        return drawn.starts.tobytes(), drawn.count.tobytes(), drawn.minimum.tobytes(), drawn.last.tobytes()

    asked: dict[str, Callable[[], object]] = {"runs": lambda: [run.info for run in runs.runs()]}
    questions: dict[str, Callable[[Run], object]] = {
        "info": lambda run: run.info,
        "keys": lambda run: run.keys(),
        "newest": lambda run: {
            source: {key: points.values.tobytes() for key, points in series.items()}
            for source, series in runs._reader.newest(run.id, "a1", ["loss", "lr"], 10).items()
        },
        "counters": lambda run: runs._reader.counters(run.id),
        "first key": lambda run: run.keys(limit=1),
        "sources": lambda run: run.sources(),
        "summaries": lambda run: run.summaries(),
        "summary of loss": lambda run: run.summaries(["loss"]),
        "loss": lambda run: points(run, "loss"),
        "lr of rank 1": lambda run: points(run, "lr", rank=1),
        "count": lambda run: points(run, "count"),
        "buckets": lambda run: buckets(run, "loss"),
        "some buckets": lambda run: buckets(run, "count", low=5, high=2000),
        "events": lambda run: run.events(),
        "epochs": lambda run: run.events("epoch"),
        "alerts": lambda run: run.alerts(),
        "findings": lambda run: run.findings(),
        "notices": lambda run: run.notices(),
    }
    for run_id in RUNS:
        for name, ask in questions.items():
            asked[f"{name} of {run_id}"] = lambda ask=ask, run_id=run_id: ask(runs.run(run_id))
    return asked


def asked_of(path: Path) -> dict[str, object]:
    """Every answer; `refused` in the place of a clear error."""
    said: list[str] = []
    try:
        reader = SqliteReader(path)
    except StoreError as error:
        said.append(str(error))
        assert_names(said, path)
        return {}
    outcomes: dict[str, object] = {}
    try:
        for name, ask in answers(Runs(reader, path.parent)).items():
            try:
                outcomes[name] = ask()
            except StoreError as error:
                said.append(str(error))
                outcomes[name] = "refused"
    finally:
        reader.close()
    assert_names(said, path)
    return outcomes


def assert_names(said: list[str], path: Path) -> None:
    """Every message has the file and what to do."""
    for text in said:
        assert str(path) in text
        assert "stepscope doctor" in text or "pip install" in text or "is not a store" in text


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "store.sqlite"
    store = SqliteStore(path)
    fill(store)
    store.close()
    return path


@pytest.fixture(scope="module")
def right(sound: Path) -> dict[str, object]:
    answers = asked_of(sound)
    assert "refused" not in answers.values()
    return answers


def pages_by_table(path: Path) -> list[list[int]]:
    """The pages of each table and index; all of them as one where SQLite does not say."""
    connection = sqlite3.connect(path)
    pages_of: dict[str, list[int]] = {}
    try:
        for name, page in connection.execute("SELECT name, pageno FROM dbstat"):
            pages_of.setdefault(name, []).append(page)
    except sqlite3.Error:
        return [list(range(1, path.stat().st_size // 4096 + 1))]
    finally:
        connection.close()
    known = {page for pages in pages_of.values() for page in pages}
    others = [page for page in range(1, path.stat().st_size // 4096 + 1) if page not in known]
    return [*pages_of.values(), others]


def check_flips(seed: int, flips: int, sound: Path, right: dict[str, object], place: Path) -> int:
    draw = random.Random(seed)
    tables, data = pages_by_table(sound), sound.read_bytes()
    damaged = place / "store.sqlite"
    refused = 0
    for number in range(flips):
        page = draw.choice(draw.choice(tables)) - 1
        at = page * 4096 + (draw.randrange(4096) if number % 3 else draw.randrange(120))
        flipped = bytearray(data)
        flipped[at] ^= draw.choice((1 << draw.randrange(8), draw.randrange(1, 256)))
        for file in place.iterdir():
            file.unlink()
        damaged.write_bytes(flipped)
        answers = asked_of(damaged)
        wrong = [name for name, answer in answers.items() if answer not in ("refused", right[name])]
        assert not wrong, f"byte {at - page * 4096} of page {page + 1}: {wrong}"
        refused += not answers or "refused" in answers.values()
    return refused


@pytest.mark.slow
def test_a_changed_byte_anywhere_gives_right_values_or_a_clear_error(
    sound: Path, right: dict[str, object], tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    assert check_flips(1, 40, sound, right, place) > 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_hundreds_of_changed_bytes_give_right_values_or_clear_errors(
    seed: int, sound: Path, right: dict[str, object], tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    assert check_flips(seed, 200, sound, right, place) > 20


@pytest.mark.slow
def test_two_swapped_pages_give_right_keys_and_summaries_or_a_clear_error(
    sound: Path, right: dict[str, object], tmp_path: Path
) -> None:
    data, damaged = sound.read_bytes(), tmp_path / "store.sqlite"
    pages = range(1, len(data) // 4096)  # the first one has the tables' definitions
    refused = 0
    for first, two in random.Random(1).sample(list(itertools.combinations(pages, 2)), 400):
        swapped = bytearray(data)
        for at, other in ((first, two), (two, first)):
            swapped[at * 4096 : (at + 1) * 4096] = data[other * 4096 : (other + 1) * 4096]
        damaged.write_bytes(swapped)
        answers_now = asked_of(damaged)
        wrong = [name for name, answer in answers_now.items() if answer not in ("refused", right[name])]
        assert not wrong, f"pages {first + 1} and {two + 1}: {wrong}"
        refused += not answers_now or "refused" in answers_now.values()
    assert refused > 100


LOST_ROWS = [
    "DELETE FROM event WHERE id = 3",
    "DELETE FROM alert WHERE id = 3",
    "DELETE FROM process WHERE rank = 1",
    "DELETE FROM tail WHERE id = (SELECT max(id) FROM tail)",
    "DELETE FROM chunk WHERE rowid = 1",
    "DELETE FROM block WHERE rowid = 1",
    "DELETE FROM node WHERE id = 1",
    "DELETE FROM rollup WHERE rowid = 1",
    "DELETE FROM member WHERE series_id = 1",
    "DELETE FROM series WHERE id = 1",
    "DELETE FROM run WHERE id = 'two'",
    "UPDATE event SET kind = 'epoch2' WHERE id = 1",
    "UPDATE event SET run_id = 'two' WHERE id = 1",
    "UPDATE event SET fields = '{\"number\": 8}' WHERE id = 1",
    "UPDATE alert SET message = 'other' WHERE id = 1",
    "UPDATE run SET name = 'other' WHERE id = 'two'",
    "DELETE FROM finding WHERE id = 3",
    "UPDATE finding SET closed_ns = 1 WHERE id = 1",
    "UPDATE finding SET fields = replace(fields, 'warning', 'varning')",
    "DELETE FROM notice WHERE id = 3",
    "UPDATE notice SET attempts = 7 WHERE id = 3",
    "UPDATE notice SET told = replace(told, 'title', 'tidle')",
    "UPDATE process SET status = 'finished'",
    "UPDATE series SET host = 'other' WHERE id = 1",
    "UPDATE series SET segment = 'other' WHERE id = 1",
    "UPDATE series SET key_sets = 2 WHERE id = 1",
    "UPDATE member SET minimum = 0 WHERE series_id = 1",
    "UPDATE member SET total = total + 1 WHERE series_id = 1",
    "UPDATE member SET nonfinite = 1 WHERE series_id = 1",
    "UPDATE key_set SET blocks = 0",
    "UPDATE key_set SET rows = rows + 1",
    "UPDATE key_set SET last = zeroblob(length(last))",
    "UPDATE key_set SET last = NULL",
    "UPDATE member SET position = 1 - position WHERE position < 2 AND series_id = 1",
    "UPDATE block SET steps = zeroblob(17)",
    "UPDATE tail SET data = zeroblob(length(data))",
    "UPDATE node SET low = low + 1",
    "UPDATE tally SET rows = rows + 1",
]


@pytest.mark.slow
@pytest.mark.parametrize("statement", LOST_ROWS)
def test_rows_that_are_gone_or_changed_are_missed(
    statement: str, sound: Path, right: dict[str, object], tmp_path: Path
) -> None:
    path = Path(shutil.copy(sound, tmp_path / "store.sqlite"))
    connection = sqlite3.connect(path, isolation_level=None)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")  # damage counts nothing
    connection.execute(statement)
    connection.close()
    answers = asked_of(path)
    assert "refused" in answers.values()
    assert all(answer in ("refused", right[name]) for name, answer in answers.items())


def test_notices_of_a_deleted_run_are_no_damage(tmp_path: Path, sound: Path) -> None:
    store = SqliteStore(Path(shutil.copy(sound, tmp_path / "store.sqlite")))
    store.delete_run("one")
    assert len(store.notices("one")) == 12
    assert len(store.notices()) == 36
    assert store.findings("one") == []
    store.close()


def test_damaged_progress_of_a_journal_is_not_gone_by(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    with store.transaction():
        store.set_progress(7, 4096, 0)
    assert store.progress(7) == (4096, 0)
    with store.transaction():
        store._connection.execute("UPDATE journal SET offset = 0")
    with pytest.raises(StoreError, match="journal"):
        store.progress(7)
    store.close()


@pytest.mark.slow
def test_no_command_prints_a_traceback_for_a_damaged_store(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copy(sound, tmp_path / "store.sqlite"))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE event SET fields = '{}'")
    connection.execute("UPDATE tail SET data = zeroblob(length(data))")
    connection.commit()
    connection.close()
    for command in (["show", "one"], ["export", "one", "--format", "json"], ["diagnose", "one"]):
        assert main([*command, "--store", str(tmp_path)]) == 1
        said = capsys.readouterr().err
        assert str(path) in said
        assert "Traceback" not in said
    assert main(["doctor", "--store", str(tmp_path)]) == 1
    assert "damaged" in capsys.readouterr().out


def test_the_newest_value_of_a_key_is_that_of_its_newest_segment(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    with store.transaction():
        for number, segment in enumerate(("a", "b", "c")):
            store.put_process(process(run_id="one", segment=segment))
            steps = np.array([10 * number])
            store.append(
                Source("one", segment, 0, "node1"), ["loss"], steps, steps + 10**18, steps[:, None] * 1.0
            )
    (known,) = store.keys("one")
    assert (known.points, known.last, known.last_step) == (3, 20.0, 20)
    store.close()
