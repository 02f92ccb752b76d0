"""`stepscope import`: what it prints, and the set-up of its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stepscope import open_store, plugins
from stepscope.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "import.md").read_text(encoding="utf-8")


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
