"""`stepscope doctor`: what works here, what does not, and what to do about it."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stepscope import TrainingMonitor, plugins
from stepscope.cli.checks import machine_checks, store_checks
from stepscope.cli.checks.package_checks import check_extras
from stepscope.cli.checks.store_checks import (
    check_agent,
    check_file_system,
    check_folder,
    check_sqlite,
    check_unread,
)
from stepscope.cli.main import main
from stepscope.config.sections import Sampler as SamplerSettings
from stepscope.config.sections import Settings
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import DeviceFacts, Metric, Notice, Sample


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("STEPSCOPE_")]:
        monkeypatch.delenv(name)


@pytest.mark.slow
def test_every_check_has_an_outcome_and_nothing_is_made(capsys, tmp_path):
    assert main(["doctor", "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert checks.keys() == {
        "python", "settings", "store", "file system", "space", "journal", "unread", "agent",
        "database", "cores", "cpu", "disk", "energy", "gpu", "memory", "network", "processes",
        "torch", "extras",
    }  # fmt: skip
    assert {check["outcome"] for check in checks.values()} <= {"ok", "note"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_page_fits_the_terminal():
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "doctor"],
        capture_output=True,
        text=True,
        cwd=tempfile.gettempdir(),
        env={**os.environ, "COLUMNS": "80"},
        check=True,
    )
    assert "Nothing here stops recording." in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_place_that_takes_no_files_is_a_problem():
    check = check_folder(Path("/proc/store"))
    assert check.outcome == "problem"
    assert "STEPSCOPE_DIR" in check.remedy


@pytest.mark.slow
def test_a_wrong_setting_is_a_problem(capsys, monkeypatch):
    Path("stepscope.yaml").write_text("agent: {mode: nonsense}\n")
    assert main(["doctor", "--json"]) == 1
    problems = [check for check in json.loads(capsys.readouterr().out) if check["outcome"] == "problem"]
    assert [problem["name"] for problem in problems] == ["settings"]
    assert "nonsense" in problems[0]["found"]


def test_unread_journals_are_noted_until_they_are_read(tmp_path):
    folder = tmp_path / "store"
    with TrainingMonitor({"agent": {"mode": "none"}}, run="r", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
    noted = check_unread(folder)
    assert noted.outcome == "note"
    assert noted.remedy.endswith("stepscope runs")
    assert main(["runs", "--store", str(folder)]) == 0
    assert check_unread(folder).found == "no unread journals"
    assert check_folder(folder).found.endswith("exists and is writable")
    assert "version" in check_sqlite(folder).found


def test_a_running_agent_is_named(tmp_path):
    from stepscope.agent.process.election import AgentLock

    with AgentLock(tmp_path):
        assert check_agent(tmp_path, Settings()).found.startswith(f"process {os.getpid()} ")
    assert "first run starts one" in check_agent(tmp_path, Settings()).found


def test_a_file_that_is_not_a_store_is_a_problem(tmp_path):
    (tmp_path / "store.sqlite").write_bytes(b"something else entirely" * 100)
    check = check_sqlite(tmp_path)
    assert check.outcome == "problem"
    assert check.remedy


def test_a_network_folder_is_noted_with_the_place_of_its_database(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 d rw\n2 1 0:2 / {tmp_path} rw - nfs4 host:/x rw\n")
    check = check_file_system(tmp_path / "store", mounts)
    assert check.outcome == "note"
    assert "nfs4" in check.found
    assert ".cache" in check.found
    assert store_checks.check_journal(tmp_path, Settings(), mounts).outcome == "note"


class Scripted(Sampler):
    metrics = (Metric("gpu/power_watts", "Power."), Metric("gpu/fan_ratio", "Fan."))

    def sample(self, watched):
        yield DeviceFacts("GPU-1", {"name": "H200", "vendor": "NVIDIA"})
        yield DeviceFacts("GPU-2", {"name": "H200", "vendor": "NVIDIA"})
        yield Sample({"gpu/power_watts": 300.0}, "GPU-1")


class Blind(Scripted):
    def sample(self, watched):
        return [Notice("gpu", "No NVIDIA driver is installed here.")]


@pytest.mark.parametrize(
    ("sampler", "outcome", "text"),
    [
        (Scripted, "ok", "2 × H200, 1 figure; missing: fan_ratio"),
        (Blind, "note", "No NVIDIA driver is installed here."),
    ],
)
def test_what_can_and_cannot_be_read_of_a_machine_is_named(monkeypatch, sampler, outcome, text):
    monkeypatch.setattr(plugins, "names", lambda _: ["gpu"])
    monkeypatch.setattr(plugins, "make", lambda *_: sampler())
    (check,) = machine_checks.check_samplers(Settings(), sleep=lambda _: None)
    assert (check.name, check.outcome, check.found) == ("gpu", outcome, text)


@pytest.mark.slow
def test_a_sampler_that_is_off_or_wrongly_set_says_so(monkeypatch):
    wrong = {"cpu": SamplerSettings(options={"colour": 1}), "disk": SamplerSettings(enabled=False)}
    texts = {check.name: check.found for check in machine_checks.check_samplers(Settings(samplers=wrong))}
    assert texts["cpu"].startswith("samplers.cpu has no option 'colour'")
    assert texts["disk"] == "disabled by samplers.disk.enabled"


def test_installed_and_missing_extras_are_distinguished():
    text = check_extras().found
    assert "parquet" in text.partition("not installed")[0]
