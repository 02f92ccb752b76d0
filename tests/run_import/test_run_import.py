"""Imports into a store: once, whole, and beside what is recorded there."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading

import pytest

from stepscope import TrainingMonitor, open_store
from stepscope.errors import SourceError
from stepscope.importers.base import Params, SourceRun
from stepscope.importers.wandb import MAGIC
from stepscope.run_import.known_runs import KnownRun
from stepscope.run_import.run_import import RunImport
from stepscope.run_import.run_journal import Summary
from stepscope.run_import.source_runs import Request
from stepscope.store import retention
from stepscope.store.open import open_marks
from stepscope.store.open import open_store as open_for_writing
from tests.importers.test_damaged_sources import history, wandb_record
from tests.importers.test_tensorboard import event, event_file, record

OLD = 1_600_000_000


def import_into(folder, place, **names):
    return RunImport(folder, pytest.fail).run(Request(str(place), **names))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "old.csv"
    path.write_text(f"step,time,loss\n0,{OLD},1\n1,{OLD + 60},nan\n")
    return path


def test_an_imported_run_has_the_times_of_its_source_and_says_where_it_comes_from(table, folder):
    [imported] = import_into(folder, table, project="archive", name="größe/1")
    run = open_store(folder).run("größe/1")
    assert (run.id, run.project, run.status) == (imported.run_id, "archive", "finished")
    assert run.info.created_ns == OLD * 10**9
    assert run.info.ended_ns == (OLD + 60) * 10**9
    [event] = run.own_events("imported")
    assert (event.fields["tool"], event.fields["source"]) == ("csv", str(table))
    assert event.fields["points"] == 2
    with contextlib.closing(open_marks(folder)) as marks:
        assert marks.tags(run.id) == ("imported",)


def test_a_second_import_names_the_run_and_adds_nothing(table, folder):
    [first] = import_into(folder, table)
    with table.open("a") as file:
        file.write(f"2,{OLD + 120},0.5\n")
    [second] = import_into(folder, table, name="other")
    assert (second.is_known, second.run_id, second.name) == (True, first.run_id, "old")
    assert len(open_store(folder).runs()) == 1
    assert len(open_store(folder).run("old").series("loss")) == 2


def outcomes(runs):
    return [(run.name, run.outcome) for run in runs]


def test_a_source_that_has_grown_says_by_how_much_and_can_be_imported_again(table, folder):
    [first] = import_into(folder, table)
    with table.open("a") as file:
        file.write("".join(f"{step},{OLD + 60 * step},0.5\n" for step in range(2, 223)))
    [second] = import_into(folder, table)
    assert (second.outcome, second.run_id) == ("changed", first.run_id)
    assert second.reason == "the source has 221 more points than were imported"
    [preview] = RunImport(folder, pytest.fail).preview(Request(str(table), again=True))
    assert preview.summary is not None
    assert preview.summary.points == 223
    assert outcomes(import_into(folder, table, again=True)) == [("old-2", "imported")]
    assert len(open_store(folder).run("old").series("loss")) == 2
    assert len(open_store(folder).run("old-2").series("loss")) == 223
    assert outcomes(import_into(folder, table, again=True)) == [("old-2", "known")]
    assert len(open_store(folder).runs()) == 2


def test_other_values_of_the_same_number_are_a_change(table, folder):
    table.write_text("step,loss\n" + "".join(f"{step},1\n" for step in range(20)))
    import_into(folder, table)
    os.utime(table, (OLD, OLD))
    assert outcomes(import_into(folder, table)) == [("old", "known")]
    table.write_text(table.read_text().replace("19,1", "19,2"))
    [imported] = import_into(folder, table)
    assert "as many points as were imported, but other values" in imported.reason


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
def test_a_table_that_another_training_has_rewritten_is_another_run(name, folder, tmp_path):
    path = tmp_path / name
    first, second = ("step,loss\n0,1\n", "1,2\n") if name == "x.csv" else ('{"loss": 1}\n', '{"loss": 2}\n')
    path.write_text(first + second + second)
    import_into(folder, path)
    path.write_text(first + first.splitlines(keepends=True)[-1])
    assert outcomes(import_into(folder, path)) == [("x-2", "imported")]
    path.write_text(first + second + second + 20 * second)
    assert outcomes(import_into(folder, path)) == [("x", "changed")]


def test_an_event_file_of_a_restart_is_a_change_of_the_run(folder, tmp_path):
    event_file(tmp_path, record(event(1.0)))
    import_into(folder, tmp_path, name="run")
    (tmp_path / "events.out.tfevents.2.host").write_bytes(record(event(2.0, 1)) + record(event(3.0, 2)))
    [imported] = import_into(folder, tmp_path)
    assert imported.reason == "the source has 2 more points than were imported"


def test_a_run_that_an_earlier_version_has_imported_is_compared_by_its_points():
    known = KnownRun("x-1", "x", "p", "/x.csv", 5, None)
    assert known.difference(Summary(points=5)) == ""
    assert "1 more point than" in known.difference(Summary(points=6))
    assert "3 fewer points than" in known.difference(Summary(points=2))


def test_a_known_run_whose_source_is_damaged_since_does_not_keep_new_runs_out(folder, tmp_path):
    for name in "ab":
        (tmp_path / "logs" / name).mkdir(parents=True)
    event_file(tmp_path / "logs" / "a", record(event(1.0)))
    import_into(folder, tmp_path / "logs")
    event_file(tmp_path / "logs" / "a", *30 * [record(event(1.0))], b"x" * 20)
    event_file(tmp_path / "logs" / "b", record(event(2.0, 0, OLD)))
    first, second = import_into(folder, tmp_path / "logs")
    assert (first.outcome, second.outcome) == ("changed", "imported")
    assert "cannot be read now" in first.reason
    with pytest.raises(SourceError, match="its checksum is wrong"):
        import_into(folder, tmp_path / "logs", again=True)


def test_a_source_that_was_written_just_now_may_go_on(table, folder):
    written_ns = table.stat().st_mtime_ns
    [preview] = RunImport(folder, pytest.fail, lambda: written_ns + 4 * 10**9).preview(Request(str(table)))
    assert "written to 4 s ago" in preview.summary.remarks[0]
    [preview] = RunImport(folder, pytest.fail, lambda: written_ns + 60 * 10**9).preview(Request(str(table)))
    assert preview.summary.remarks == []


def test_damaged_runs_can_be_skipped_and_keep_their_names(folder, tmp_path):
    for number in range(3):
        run = tmp_path / "mlruns" / "0" / str(number)
        (run / "metrics").mkdir(parents=True)
        start = "noon" if number == 0 else 1_700_000_000_000
        (run / "meta.yaml").write_text(f"run_id: a{number}\nrun_name: x\nstart_time: {start}\nstatus: 3\n")
        (run / "metrics" / "loss").write_text(f"1700000000000 {'half' if number == 1 else 0.5} 0\n")
    with pytest.raises(SourceError, match="noon"):
        import_into(folder, tmp_path / "mlruns")
    imported = import_into(folder, tmp_path / "mlruns", skip_damaged=True)
    assert [run.outcome for run in imported] == ["damaged", "damaged", "imported"]
    assert "'noon'" in imported[0].reason
    assert "'half'" in imported[1].reason
    assert [run.name for run in open_store(folder).runs()] == ["x-2"]
    assert [path.name for path in (folder / "runs").iterdir()] == [imported[2].run_id]
    (tmp_path / "mlruns" / "0" / "1" / "metrics" / "loss").write_text("1700000000000 0.5 0\n")
    second = import_into(folder, tmp_path / "mlruns", skip_damaged=True)
    assert [run.outcome for run in second] == ["damaged", "imported", "known"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("events.out.tfevents.1", b""), ("run-x.wandb", b""), ("run-x.wandb", MAGIC)],
    ids=["tensorboard", "wandb", "only the head"],
)
def test_a_source_with_nothing_in_it_is_skipped_and_can_be_imported_later(name, content, folder, tmp_path):
    path = tmp_path / "logs" / name
    path.parent.mkdir()
    path.write_bytes(content)
    [run] = import_into(folder, path.parent)
    assert (run.outcome, run.reason) == ("empty", "nothing is in it")
    assert list((folder / "runs").iterdir()) == []
    rest = record(event(1.0)) if "tfevents" in name else MAGIC[len(content) :] + wandb_record(history(0))
    path.write_bytes(content + rest)
    assert [run.outcome for run in import_into(folder, path.parent)] == ["imported"]
    assert len(open_store(folder).runs()) == 1


@pytest.mark.parametrize("place", ["", "  ", "sqlite:///", "file://"])
def test_an_empty_source_is_not_the_working_folder(place, folder, tmp_path):
    event_file(tmp_path, record(event(1.0)))
    with pytest.raises(SourceError, match="No source is named"):
        import_into(folder, place)


def test_a_format_of_export_that_cannot_be_imported_names_those_that_can(folder, tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"[]")
    with pytest.raises(SourceError, match="CSV and JSON lines can"):
        import_into(folder, tmp_path / "x.parquet")


def test_a_json_document_is_refused_with_what_is_expected(folder, tmp_path):
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(SourceError, match=r"x\.json is a JSON document, expected JSON lines: .*--kind jsonl"):
        import_into(folder, tmp_path / "x.json")


def test_the_command_for_the_log_of_a_hugging_face_trainer_makes_lines_that_can_be_imported(folder, tmp_path):
    path = tmp_path / "check point" / "trainer_state.json"
    path.parent.mkdir()
    log = [{"step": 10, "epoch": 0.5, "loss": 2.5}, {"step": 20, "epoch": 1.0, "loss": math.nan}]
    path.write_text(json.dumps({"best_metric": None, "log_history": log}, indent=2))
    with pytest.raises(SourceError, match="is a JSON document") as raised:
        import_into(folder, path)
    command = str(raised.value).partition(" with: ")[2].replace("python", shlex.quote(sys.executable), 1)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    import_into(folder, tmp_path / "trainer_state.jsonl")
    loss = open_store(folder).run("trainer_state").series("loss")
    assert (loss.steps.tolist(), loss.values[0], math.isnan(loss.values[1])) == ([10, 20], 2.5, True)


def database(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("".join(f"CREATE TABLE t{n} (a, '{'b' * 500}');" for n in range(20)))
    return path


@pytest.mark.parametrize("place", ["{}/logs/x.db", "{}/logs", "sqlite:///{}/logs/x.db"])
def test_a_database_that_is_cut_off_is_damaged_and_not_unknown(place, folder, tmp_path):
    (tmp_path / "logs").mkdir()
    path = database(tmp_path / "logs" / "x.db")
    with pytest.raises(SourceError, match="is not recognised"):
        import_into(folder, place.format(tmp_path))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(
        SourceError, match=r"x\.db is a damaged SQLite database: database disk image is malformed"
    ):
        import_into(folder, place.format(tmp_path))


@pytest.mark.parametrize("kind", [None, "mlflow"])
@pytest.mark.parametrize("place", ["/nowhere/x.db", "sqlite:////nowhere/x.db", "file:///nowhere/x.db"])
def test_a_path_that_does_not_exist_says_so_in_every_form(place, kind, folder):
    with pytest.raises(SourceError, match=r"There is no file or folder /nowhere/x\.db"):
        import_into(folder, place, kind=kind)


def test_a_preview_shows_the_names_and_ids_that_the_import_gives(table, folder, tmp_path):
    def names_and_ids(runs):
        return [(run.name, run.run_id, run.outcome) for run in runs]

    import_into(folder, table)
    for name in ("b", "c"):
        run = tmp_path / "mlruns" / "0" / name
        (run / "metrics").mkdir(parents=True)
        (run / "meta.yaml").write_text(
            f"run_id: {name}\nrun_name: old\nstart_time: 1700000000000\nstatus: 3\n"
        )
        (run / "metrics" / "loss").write_text("1700000000000 0.5 0\n")
    request = Request(str(tmp_path / "mlruns"), project="default")
    preview = names_and_ids(RunImport(folder, pytest.fail).preview(request))
    assert [name for name, _, _ in preview] == ["old-2", "old-3"]
    assert names_and_ids(RunImport(folder, pytest.fail).preview(request)) == preview
    assert names_and_ids(RunImport(folder, pytest.fail).run(request)) == preview


def test_a_preview_gives_a_run_that_was_deleted_its_name_back(table, folder):
    [imported] = import_into(folder, table)
    (folder / "store.sqlite").unlink()
    [preview] = RunImport(folder, pytest.fail).preview(Request(str(table)))
    assert (preview.name, preview.run_id, preview.outcome) == ("old", imported.run_id, "imported")
    assert outcomes(import_into(folder, table)) == [("old", "imported")]


def test_a_preview_finds_the_names_of_a_store_that_an_earlier_version_has_made(table, folder, tmp_path):
    import_into(folder, table)
    shutil.rmtree(folder / "runs")
    other = tmp_path / "b" / "old.csv"
    other.parent.mkdir()
    other.write_text("loss\n7\n")
    [preview] = RunImport(folder, pytest.fail).preview(Request(str(other)))
    assert preview.name == "old-2"
    assert outcomes(import_into(folder, other)) == [("old-2", "imported")]


def test_a_preview_finds_the_second_copy_of_a_run_in_its_source(folder, tmp_path):
    for place in ("logs/run", "logs/copy/run"):
        (tmp_path / place).mkdir(parents=True)
        event_file(tmp_path / place, record(event(1.0)))
    request = Request(str(tmp_path / "logs"))
    preview = outcomes(RunImport(folder, pytest.fail).preview(request))
    assert sorted(outcome for _, outcome in preview) == ["imported", "known"]
    assert outcomes(RunImport(folder, pytest.fail).run(request)) == preview


def test_parameters_that_a_run_does_not_keep_whole_are_said_once(folder, tmp_path):
    text, many = "x" * 1001, list(range(5000))
    summary = Summary()
    run = SourceRun("x", "x", str(tmp_path), 0, lambda: iter(()))
    for _ in range(2):
        summary.count(Params({"a": {"b": [text]}, "many": many, "short": "y" * 1000}), run)
    cut, converted = summary.remarks
    assert cut == "only the first 1,000 characters of parameters were kept: a.b.0 (1,001)"
    assert "recorded as text: many" in converted


def test_another_file_of_the_same_name_gets_a_name_of_its_own(table, folder, tmp_path):
    import_into(folder, table)
    (tmp_path / "b").mkdir()
    other = tmp_path / "b" / "old.csv"
    other.write_text("loss\n7\n")
    [imported] = import_into(folder, other)
    assert imported.name == "old-2"
    assert open_store(folder).run("old-2").series("loss").values.tolist() == [7.0]
    assert len(open_store(folder).run("old").series("loss")) == 2


def test_a_training_of_the_same_name_is_a_run_beside_it(table, folder, without_agent):
    import_into(folder, table)
    with TrainingMonitor(run="old", directory=folder) as monitor:
        monitor.log({"loss": 3.0})
    assert {run.name for run in open_store(folder).runs()} == {"old", "old-2"}


def test_a_preview_reads_all_of_it_and_writes_nothing(table, folder):
    [preview] = RunImport(folder, pytest.fail).preview(Request(str(table)))
    assert preview.summary is not None
    assert (preview.name, preview.summary.points, preview.summary.keys) == ("old", 2, {"loss"})
    assert not folder.exists()


def test_one_damaged_run_keeps_all_runs_of_the_source_out(folder, tmp_path):
    logs = tmp_path / "logs"
    for name in ("a", "b"):
        (logs / name).mkdir(parents=True)
        (logs / name / "events.out.tfevents.1").write_bytes(30 * record(event(1.0)))
    with (logs / "b" / "events.out.tfevents.1").open("ab") as file:
        file.write(b"x" * 12)
    with pytest.raises(SourceError, match="damaged"):
        import_into(folder, logs)
    assert list((folder / "runs").iterdir()) == []
    assert not (folder / "import").exists()
    assert not (folder / "store.sqlite").exists()
    (logs / "b" / "events.out.tfevents.1").unlink()
    assert [(run.name, run.outcome) for run in import_into(folder, logs)] == [("a", "imported")]


def test_what_a_killed_import_has_left_is_removed(table, folder):
    left = folder / "import" / "journal" / "old-1" / "x-r0-0.0"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half a journal")
    import_into(folder, table)
    assert not left.exists()
    assert [run.name for run in open_store(folder).runs()] == ["old"]


def test_only_one_import_writes_at_a_time(table, folder):
    importing = RunImport(folder, pytest.fail)
    with importing._locked(), pytest.raises(SourceError, match="Another import"):
        import_into(folder, table)
    assert len(import_into(folder, table)) == 1


def test_two_imports_of_one_source_at_once_make_one_run(table, folder):
    outcomes = []

    def act():
        try:
            outcomes.append(import_into(folder, table)[0].is_known)
        except SourceError as error:
            outcomes.append("Another import" in str(error))

    threads = [threading.Thread(target=act) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, True, True, True]
    assert len(open_store(folder).runs()) == 1


@pytest.mark.slow
def test_a_live_run_and_its_agent_go_on_while_runs_are_imported(table, folder):
    with TrainingMonitor(run="live", directory=folder) as monitor:
        for step in range(100):
            monitor.log({"loss": float(step)}, step=step)
            if step == 50:
                import_into(folder, table)
    store = open_store(folder)
    assert store.run("live").series("loss").values.tolist() == [float(step) for step in range(100)]
    assert len(store.run("old").series("loss")) == 2
    assert store.run("old").status == "finished"
    assert store.run("old").alerts() == []


def test_retention_keeps_imported_runs_and_does_not_count_them(table, folder, tmp_path, without_agent):
    limits = {"store": {"retention": {"max_runs": 1, "max_age_days": 30}}, "directory": str(folder)}
    with TrainingMonitor({"run": "own", **limits}) as monitor:
        monitor.log({"loss": 1.0})
    for name in "abc":
        other = tmp_path / f"{name}.csv"
        other.write_text(table.read_text())
        import_into(folder, other)
    with contextlib.closing(open_for_writing(folder)) as store:
        assert retention.apply(store) == []
        assert len(store.runs()) == 4


def test_an_import_does_not_push_out_runs_with_a_limit_on_the_store(table, folder, without_agent):
    limits = {"store": {"retention": {"max_bytes": 1 << 20}}, "directory": str(folder)}
    with TrainingMonitor({"run": "own", **limits}) as monitor:
        monitor.log({"loss": 1.0})
    open_store(folder).close()
    table.write_text("step,loss\n" + "".join(f"{step},1\n" for step in range(30_000)))
    with pytest.raises(SourceError, match="max_bytes"):
        import_into(folder, table)
    assert [run.name for run in open_store(folder).runs()] == ["own"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error(table, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(SourceError, match="cannot be written"):
        import_into(closed / "store", table)


def test_a_store_folder_that_is_a_file_is_an_error(table, tmp_path):
    with pytest.raises(SourceError, match="cannot be written"):
        import_into(table, table)


@pytest.mark.parametrize("place", ["missing", "x.bin", "empty", "\0", "x" * 5000])
def test_a_source_that_is_none_is_an_error(place, folder, tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(100))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError):
        import_into(folder, place)
    assert not folder.exists()


def test_a_pipe_does_not_block(folder, tmp_path):
    os.mkfifo(tmp_path / "x.csv")
    with pytest.raises(SourceError):
        import_into(folder, "x.csv", kind="csv")


def test_a_folder_of_two_kinds_asks_which(folder, tmp_path):
    (tmp_path / "events.out.tfevents.1").write_bytes(record(b"\x09" + struct.pack("<d", OLD)))
    (tmp_path / "run-x.wandb").write_bytes(b"")
    with pytest.raises(SourceError, match="tensorboard, wandb. Choose one with --kind"):
        import_into(folder, tmp_path)


def test_secrets_in_names_and_parameters_are_not_kept(folder, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"loss": 1, "note": "password=hunter2hunter2"}\n')
    import_into(folder, path)
    [event] = open_store(folder).run("x").events("text")
    assert "hunter2" not in str(event.fields)


def test_a_row_of_many_values_is_kept_whole(folder, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("{" + ", ".join(f'"key{n}": {n}' for n in range(3000)) + "}\n")
    import_into(folder, path)
    run = open_store(folder).run("x")
    assert {info.key: info.last for info in run.keys()} == {f"key{n}": float(n) for n in range(3000)}


def test_a_run_that_fills_several_journal_files_is_stored_whole(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("stepscope.run_import.run_journal.FILE_BYTES", 1 << 16)
    path = tmp_path / "x.csv"
    path.write_text("step,loss\n" + "".join(f"{step},{step / 7}\n" for step in range(6000)))
    import_into(folder, path)
    run = open_store(folder).run("x")
    assert run.series("loss").values.tolist() == [step / 7 for step in range(6000)]
    assert run.segments[0].processes[0].lost == 0
    assert list((folder / "journal").iterdir()) == []


def test_more_metrics_than_a_run_may_have_are_an_error(folder, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("{" + ", ".join(f'"{n}": {n}' for n in range(50_001)) + "}\n")
    with pytest.raises(SourceError, match="more than 50,000 metrics"):
        import_into(folder, path)
    assert open_store(folder).runs() == [] if (folder / "store.sqlite").exists() else True
