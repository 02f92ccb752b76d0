"""`stepscope config`: show, validate, init."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope.cli.main import main
from stepscope.config.load import load
from stepscope.config.reference import sample
from stepscope.config.sections import Sampler, Settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "stepscope.yaml"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPSCOPE_CONFIG", raising=False)


def test_show_prints_value_and_origin_of_each_setting(capsys, monkeypatch):
    Path("a.yaml").write_text("run: r\ndashboard:\n  port: 9\n")
    monkeypatch.setenv("STEPSCOPE_AGENT__MODE", "thread")
    assert main(["config", "show", "--origin", "a.yaml"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["dashboard.port:", "9", "#", "a.yaml:3"] in lines
    assert ["agent.mode:", '"thread"', "#", "environment", "STEPSCOPE_AGENT__MODE"] in lines
    assert ["dashboard.enabled:", "false", "#", "default"] in lines


def test_show_as_json_is_one_object(capsys):
    Path("a.yaml").write_text("run: r\n")
    assert main(["config", "show", "--json", "--origin", "a.yaml"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["settings"]["run"] == "r"
    assert shown["origins"]["run"] == "a.yaml:1"


def test_validate_says_that_a_file_is_fine(capsys):
    Path("a.yaml").write_text("run: r\n")
    assert main(["config", "validate", "a.yaml"]) == 0
    assert capsys.readouterr().out == "a.yaml: no problems\n"


def test_validate_names_every_mistake_and_fails(capsys):
    Path("a.yaml").write_text("runn: r\nagent: {mode: x}\n")
    assert main(["config", "validate", "a.yaml"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(" ")[0] for line in captured.err.splitlines()] == ["a.yaml:1:", "a.yaml:2:"]


def test_validate_reports_what_is_wrong_in_the_environment_too(capsys, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_AGNET__MODE", "thread")
    Path("a.yaml").write_text("run: r\n")
    assert main(["config", "validate", "a.yaml"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "environment STEPSCOPE_AGNET__MODE: there is no such setting; did you mean STEPSCOPE_AGENT__MODE?\n"
    )


def test_show_continues_without_a_wrong_variable_and_names_it_in_one_line(start):
    process = start(
        """
        import sys
        from stepscope.cli.main import main
        sys.exit(main(["config", "show", "--json"]))
        """,
        environment={"STEPSCOPE_QUUX": "1"},
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(out)["settings"]["agent"]["mode"] == "process"
    assert err == (
        'stepscope ignores the environment variable STEPSCOPE_QUUX="1": there is no such setting.\n'
    )


def test_show_says_that_everything_is_switched_off_and_by_what(capsys, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_DISABLED", "1")
    Path("a.yaml").write_text("recorder: {enabled: true}\n")
    assert main(["config", "show", "--origin", "a.yaml"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["recorder.enabled:", "false", "#", "environment", "STEPSCOPE_DISABLED"] in lines


def test_init_writes_a_sample_that_loads_as_the_defaults():
    assert main(["config", "init"]) == 0
    settings = load(environment={}).settings
    assert replace(settings, samplers={}) == Settings()
    assert settings.sampler("gpu") == Sampler()


def test_init_refuses_to_overwrite_unless_forced(capsys):
    Path("mine.yaml").write_text("run: mine\n")
    assert main(["config", "init", "mine.yaml"]) == 1
    assert Path("mine.yaml").read_text() == "run: mine\n"
    assert "--force" in capsys.readouterr().err
    assert main(["config", "init", "mine.yaml", "--force"]) == 0
    assert Path("mine.yaml").read_text() == sample()


def test_init_into_a_missing_folder_fails_with_the_reason(capsys):
    assert main(["config", "init", "no/such/a.yaml"]) == 1
    assert "no/such/a.yaml cannot be written: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["validate"], ["erase"]])
def test_misuse_exits_with_two(words):
    with pytest.raises(SystemExit) as left:
        main(["config", *words])
    assert left.value.code == 2


def test_the_sample_with_every_setting_switched_on_is_still_the_defaults():
    Path("all.yaml").write_text(re.sub(r"(?m)^( *)#(?=\w)", r"\1", sample()))
    loaded = load("all.yaml", environment={})
    assert replace(loaded.settings, samplers={}) == Settings()
    assert set(loaded.origins.values()).isdisjoint({"default"})


def test_the_example_is_what_init_writes():
    assert EXAMPLE.read_text() == sample(), "Write it again: stepscope config init --force"
