"""`stepscope import`: what it prints, and the set-up of its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stepscope import open_store, plugins
from stepscope.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "import.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _wide_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "old.csv"
    path.write_text("step,time,loss\n0,1600000000,1\n1,1600000060,nan\n")
    return path


def test_a_line_for_each_run_is_printed(table, folder, capsys):
    assert main(["import", str(table), "--store", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"old +default +finished +2020-09-1\d .* 1 +2 +imported", out)
    assert "Imported 1 run into" in err
    assert main(["import", str(table), "--store", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert "imported before, as old-" in out
    assert "Imported 0 runs" in err


def test_a_dry_run_shows_what_would_come(table, folder, capsys):
    assert main(["import", str(table), "--dry-run", "--json", "--store", str(folder)]) == 0
    [run] = json.loads(capsys.readouterr().out)
    assert (run["run"], run["points"], run["started"], run["ended"]) == ("old", 2, 1600000000, 1600000060)
    assert not folder.exists()


def test_a_source_that_cannot_be_read_is_a_failure_with_one_line(folder, capsys):
    assert main(["import", "nowhere", "--store", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "nowhere" in err


def test_a_name_for_several_runs_is_refused(folder, tmp_path, capsys):
    for name in "ab":
        run = tmp_path / "mlruns" / "0" / name
        (run / "metrics").mkdir(parents=True)
        (run / "meta.yaml").write_text(f"run_id: {name}\nstart_time: 1700000000000\nstatus: 3\n")
    assert main(["import", "mlruns", "--name", "x", "--store", str(folder)]) == 1
    assert "has 2 runs" in capsys.readouterr().err


def test_a_source_that_has_changed_is_said_and_is_a_failure_until_it_is_imported_again(table, folder, capsys):
    main(["import", str(table), "--store", str(folder)])
    with table.open("a") as file:
        file.write("2,1600000120,1\n3,1600000180,1\n")
    capsys.readouterr()
    assert main(["import", str(table), "--store", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert "imported before, as old-" in out
    assert "the source has 2 more points than were imported" in out
    assert "has changed since: --again imports it as a new run" in err
    assert main(["import", str(table), "--again", "--store", str(folder)]) == 0
    assert "old-2" in capsys.readouterr().out
    assert main(["import", str(table), "--store", str(folder)]) == 0


@pytest.mark.parametrize("option", [[], ["--dry-run"]])
def test_what_was_left_out_is_said(option, table, folder, capsys):
    table.write_text("step,loss,note\n0,1,a\n1,2%,b\n")
    assert main(["import", str(table), "--json", *option, "--store", str(folder)]) == 0
    out, err = capsys.readouterr()
    [run] = json.loads(out)
    assert run["left_out"] == {"note": 2, "loss": 1}
    assert "left out cells that are not numbers: note (2), loss (1)" in run["remarks"][0]
    assert "old: left out cells that are not numbers: note (2), loss (1)." in err


def test_damaged_runs_are_listed_and_the_others_imported(folder, tmp_path, capsys):
    for name in "ab":
        run = tmp_path / "mlruns" / "0" / name
        (run / "metrics").mkdir(parents=True)
        (run / "meta.yaml").write_text(f"run_id: {name}\nstart_time: 1700000000000\nstatus: 3\n")
        (run / "metrics" / "loss").write_text(f"1700000000000 {'half' if name == 'a' else 1} 0\n")
    assert main(["import", "mlruns", "--skip-damaged", "--store", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert re.search(r"a +default +damaged .* is damaged at line 1", out)
    assert "Imported 1 run into" in err
    assert "1 run left out as damaged" in err
    assert [run.name for run in open_store(folder).runs()] == ["b"]


def test_a_server_is_named_without_its_password(folder, capsys, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert main(["import", "http://me:secret@127.0.0.1:1/x", "--store", str(folder)]) == 1
    assert "Reading http://127.0.0.1:1/x" in capsys.readouterr().err


@pytest.mark.parametrize("kind", plugins.names("importers"))
def test_every_kind_of_source_is_documented(kind):
    assert f"| `{kind}` |" in PAGE


def test_the_set_up_of_the_page_works():
    pytest.importorskip("tensorboardX")
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    [commands] = re.findall(r"```console\n(\$ stepscope import logs.*?)```", PAGE, re.DOTALL)
    exec(code, {})
    for command in re.findall(r"^\$ stepscope (.*)$", commands, re.MULTILINE):
        assert main(command.partition("  #")[0].split()) == 0
    run = open_store().run("baseline")
    assert len(run.series("train/loss")) == 100
