"""Runs that one agent serves each go by their own settings, and by nothing of another's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.agent.alerting import Alerting
from stepscope.agent.process.election import agent_pid
from stepscope.agent.run_settings import RunSettings, RunSettingsRegistry
from stepscope.config.load import load
from stepscope.config.sections import Energy, Targets
from stepscope.exporters.base import Table
from stepscope.journal.folder import JournalName
from stepscope.journal.private_settings import list_private, private_file, read_private, write_private
from stepscope.schema.run import Process
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore
from tests.alerts.receiver import Receiver

SECRET = "kG7vQ2xW9zT4"

TRAINING = """
import sys, stepscope
with stepscope.TrainingMonitor(run=sys.argv[1]) as monitor:
    print("begun", flush=True)
    for order in sys.stdin:
        loss, level = map(float, order.split())
        monitor.log_training_step(loss=loss, custom_metrics={"level": level})
        print("logged", flush=True)
"""

FIRST = """
agent: {interval_s: 0.05}
alerts:
  rules: [{name: first_rule, when: "level > 1"}]
  disabled: [crashed]
  channels: {console: {enabled: false}, log_file: {path: alerts.jsonl}}
exporters: {metrics_files: {directory: metrics}}
detectors: {num.nonfinite: {enabled: false}}
"""

SECOND = """
alerts:
  rules: [{name: second_rule, when: "level > 1"}]
  disabled: [nonfinite_loss]
  channels: {console: {enabled: false}, webhook: {url: {env: HOOK}}}
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


class Training:
    """A training with its own folder and settings file, which runs the commands of the test."""

    def __init__(self, start, home: Path, settings: str, **environment: str) -> None:
        home.mkdir()
        (home / "stepscope.yaml").write_text(settings)
        self.home = home
        options = {"cwd": home, "stdin": -1, "environment": environment}
        self.process = start(TRAINING, home.name, **options)
        assert self.process.stdout.readline() == "begun\n"

    def log(self, loss: float, level: float) -> None:
        self.process.stdin.write(f"{loss} {level}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "logged\n"

    def end(self) -> None:
        self.process.stdin.close()
        self.process.stdin = None
        assert self.process.wait(60) == 0

    def rules(self) -> list[str]:
        """The rules in the alert file of its folder."""
        path = self.home / "alerts.jsonl"
        notices = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [
            alert["rule"] for notice in notices if notice["kind"] == "firing" for alert in notice["alerts"]
        ]


def rules_fired(folder: Path, run: str) -> set[str]:
    return {alert["rule"] for alert in stepscope.open_store(folder).run(run).alerts()}


def open_findings(folder: Path, run: str) -> set[str]:
    return {finding["id"] for finding in stepscope.open_store(folder).run(run).findings() if finding["open"]}


@pytest.mark.slow
def test_two_runs_of_one_agent_have_each_their_own_rules_channels_exporters_and_detectors(
    start, folder: Path, tmp_path: Path, receiver: Receiver, until
) -> None:
    first = Training(start, tmp_path / "first", FIRST)
    until(lambda: agent_pid(folder) is not None)
    agent = agent_pid(folder)
    second = Training(start, tmp_path / "second", SECOND, HOOK=f"{receiver.url}/{SECRET}")
    for training in (first, second):
        for _ in range(30):
            training.log(float("nan"), 2.0)
    until(lambda: set(first.rules()) == {"first_rule", "nonfinite_loss"})
    until(lambda: receiver.rules() == ["second_rule"])
    assert agent_pid(folder) == agent
    first.end()
    second.end()

    assert rules_fired(folder, "first") == {"first_rule", "nonfinite_loss"}
    assert rules_fired(folder, "second") == {"second_rule"}
    assert set(first.rules()) == {"first_rule", "nonfinite_loss"}
    assert set(receiver.rules()) == {"second_rule"}
    assert open_findings(folder, "first") == set()
    assert open_findings(folder, "second") == {"num.nonfinite"}
    [written] = (first.home / "metrics").glob("training_metrics_*.jsonl")
    assert len(written.read_text().splitlines()) == 30
    assert [path.name for path in second.home.iterdir()] == ["stepscope.yaml"]


@pytest.mark.slow
def test_a_run_without_settings_gets_nothing_of_the_run_that_started_the_agent(
    start, folder: Path, tmp_path: Path, until
) -> None:
    first = Training(start, tmp_path / "first", FIRST)
    until(lambda: agent_pid(folder) is not None)
    plain = Training(start, tmp_path / "plain", "")
    for training in (first, plain):
        for _ in range(25):
            training.log(float("nan"), 2.0)
    until(lambda: "nonfinite_loss" in rules_fired(folder, "plain"))
    until(lambda: "first_rule" in first.rules())
    plain.end()
    first.end()
    assert rules_fired(folder, "plain") == {"nonfinite_loss"}
    assert first.rules().count("nonfinite_loss") == 1
    assert len(list((first.home / "metrics").iterdir())) == 1


@pytest.mark.slow
def test_an_agent_that_is_killed_is_followed_by_one_that_goes_by_the_same_settings(
    start, folder: Path, tmp_path: Path, receiver: Receiver, until
) -> None:
    first = Training(start, tmp_path / "first", FIRST)
    second = Training(start, tmp_path / "second", SECOND, HOOK=receiver.url)
    until(lambda: agent_pid(folder) is not None)
    killed = agent_pid(folder)
    os.kill(killed, signal.SIGKILL)
    until(lambda: agent_pid(folder) not in (None, killed))
    for training in (first, second):
        training.log(1.0, 2.0)
    until(lambda: first.rules() == ["first_rule"])
    until(lambda: receiver.rules() == ["second_rule"])
    for training in (first, second):
        training.end()
    assert list((first.home / "metrics").iterdir())
    assert not (second.home / "metrics").exists()


@pytest.mark.slow
def test_a_notice_of_a_run_that_has_ended_is_delivered_by_the_agent_of_a_later_one(
    start, folder: Path, tmp_path: Path, receiver: Receiver, until
) -> None:
    receiver.status = 503
    ended = Training(start, tmp_path / "ended", SECOND, HOOK=receiver.url)
    ended.log(1.0, 2.0)
    until(lambda: any(notice["attempts"] for notice in stepscope.open_store(folder).run("ended").notices()))
    ended.end()
    os.kill(agent_pid(folder), signal.SIGKILL)
    until(lambda: agent_pid(folder) is None)
    receiver.status = 200
    later = Training(start, tmp_path / "later", "")
    until(lambda: receiver.rules() == ["second_rule"])
    until(lambda: list(list_private(folder)) == [])
    later.end()


@pytest.mark.slow
def test_secrets_are_in_a_file_of_their_owner_while_the_run_goes_on_and_nowhere_after_it(
    start, folder: Path, tmp_path: Path, receiver: Receiver, until
) -> None:
    def places() -> dict[Path, int]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {path: path.stat().st_mode for path in files if SECRET.encode() in path.read_bytes()}

    training = Training(start, tmp_path / "second", SECOND, HOOK=f"{receiver.url}/{SECRET}")
    training.log(1.0, 2.0)
    until(lambda: receiver.rules() == ["second_rule"])
    [(path, mode)] = places().items()
    assert path.suffix == ".settings"
    assert stat.S_IMODE(mode) == 0o600
    training.end()
    until(lambda: agent_pid(folder) is None)
    assert places() == {}
    assert not (folder / "journal" / "second").exists()


def test_what_an_agent_that_ended_with_its_process_has_left_is_deleted_by_the_next_reader(
    run_script, folder: Path
) -> None:
    code = """
    import stepscope
    config = {"agent": {"mode": "thread"}, "alerts": {"channels": {"log_file": {"path": "a.jsonl"}}}}
    with stepscope.TrainingMonitor(config, run="r") as monitor:
        monitor.log({"loss": 1.0})
    """
    assert run_script(code).returncode == 0
    assert stepscope.open_store(folder).run("r").status == "finished"
    assert list(list_private(folder)) == []
    assert not (folder / "journal" / "r").exists()


def settings(**alerts: Any) -> Any:
    return load({"alerts": alerts}, environment={}).settings


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(folder / "store.sqlite")
    yield opened
    opened.close()


def put(store: SqliteStore, folder: Path, link: str, **fields: Any) -> Process:
    known = {"segment": "a", "rank": 0, "pid": 7, "role": "rank", "started_ns": 5, **fields}
    process = Process("r", "r", "p", host="h", facts={"has_private_settings": True}, **known)
    with store.transaction():
        store.put_process(process)
    name = JournalName("r", process.segment, process.rank, process.pid)
    write_private(private_file(folder, name), settings(link=link))
    return process


def test_quiet_hours_links_and_switches_are_those_of_each_run(folder: Path, store: SqliteStore) -> None:
    midnight_ns = 20_000 * 86_400 * 10**9
    rules = [{"name": "high", "when": "loss > 2"}]
    by_run = {
        "quiet": settings(rules=rules, quiet_hours="23:00-01:00 UTC"),
        "loud": settings(rules=rules, link="http://page"),
        "off": settings(rules=rules, enabled=False),
    }
    alerting = Alerting(folder, store, lambda run: RunSettings(by_run[run].alerts), lambda: midnight_ns)
    number = np.array([1])
    for run in by_run:
        process = Process(run, run, "p", "a", 0, "h", 7, "rank", started_ns=midnight_ns)
        source, times, values = Source(run, "a", 0, "h"), np.array([midnight_ns]), np.array([[5.0]])
        with store.transaction():
            store.put_process(process)
            store.append(source, ["loss"], number, times, values)
        alerting.on_process(process)
        alerting.on_rows(Table(source, ["loss"], number, times, values))
    alerting.on_round_end()
    alerting.close()
    assert {run: [alert["rule"] for alert in store.alerts(run)] for run in by_run} == {
        "quiet": ["high"],
        "loud": ["high"],
        "off": [],
    }
    assert [(notice["run"], notice["link"]) for notice in store.notices()] == [
        ("loud", "http://page/run/loud/metrics?q=loss")
    ]


def test_the_lowest_rank_of_the_newest_start_decides_whoever_comes_first(
    folder: Path, store: SqliteStore
) -> None:
    registry = RunSettingsRegistry(folder, store)
    expected = []
    for link, fields in {
        "http://launcher": {"role": "launcher", "pid": 1},
        "http://rank1": {"rank": 1, "pid": 2},
        "http://rank0": {"pid": 3},
        "http://rank2": {"rank": 2, "pid": 4},
        "http://later": {"segment": "b", "rank": 1, "pid": 5, "started_ns": 9},
    }.items():
        registry.on_process(put(store, folder, link, **fields))
        expected.append(registry.get("r").alerts.link)
    assert expected == ["http://launcher", "http://rank1", "http://rank0", "http://rank0", "http://later"]


def test_what_the_lowest_rank_left_stays_while_any_process_of_the_run_goes_on(
    folder: Path, store: SqliteStore
) -> None:
    registry = RunSettingsRegistry(folder, store)
    other = put(store, folder, "http://rank1", rank=1, pid=8)
    put(store, folder, "http://rank0", ended_ns=9)
    registry.on_process(other)
    registry.delete_unneeded()
    assert registry.get("r").alerts.link == "http://rank0"
    with store.transaction():
        store.put_process(replace(other, ended_ns=10))
    registry.delete_unneeded()
    assert list(list_private(folder)) == []


def test_a_target_for_the_cost_is_judged_with_the_prices_of_the_run(
    folder: Path, store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.yaml").write_text("gpus: []\n")
    config = {
        "directory": str(folder),
        "agent": {"mode": "none"},
        "targets": {"cost": 3.0, "steps_per_second": 7},
        "energy": {"currency": "EUR", "prices_file": "prices.yaml"},
    }
    monitor = stepscope.TrainingMonitor(config, run="priced")
    monitor.log({"loss": 1.0})
    [process] = [part for run in stepscope.open_store(folder).runs() for part in run.segments[-1].processes]
    settings = RunSettingsRegistry(folder, store).get(process.run_id)
    monitor.stop_monitoring()
    assert settings.targets == Targets(steps_per_second=7.0, cost=3.0)
    assert settings.energy == Energy(currency="EUR", prices_file=str(tmp_path / "prices.yaml"))
    assert "prices.yaml" not in str(process.facts)


def test_settings_that_could_not_be_read_are_read_when_they_exist(folder: Path, store: SqliteStore) -> None:
    process = put(store, folder, "http://page")
    path = private_file(folder, JournalName("r", "a", 0, 7))
    path.unlink()
    registry = RunSettingsRegistry(folder, store)
    registry.on_process(process)
    assert registry.get("r").alerts.link is None
    write_private(path, settings(link="http://again"))
    registry.delete_unneeded()
    assert registry.get("r").alerts.link == "http://again"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_could_read_or_write_is_ignored_with_a_warning(
    folder: Path, store: SqliteStore, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    process = put(store, folder, "http://page")
    path = private_file(folder, JournalName("r", "a", 0, 7))
    path.chmod(mode)
    registry = RunSettingsRegistry(folder, store)
    registry.on_process(process)
    assert registry.get("r").alerts.link is None
    assert f"others could read or write it (mode {mode:04o})" in caplog.text


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    write_private(tmp_path / "there.settings", settings(link="http://page"))
    (tmp_path / "here.settings").symlink_to(tmp_path / "there.settings")
    assert read_private(tmp_path / "there.settings").link == "http://page"
    with pytest.raises(OSError, match="symbolic links"):
        read_private(tmp_path / "here.settings")


def test_a_copy_that_came_with_a_store_from_elsewhere_is_not_followed(tmp_path: Path) -> None:
    write_private(tmp_path / "a.settings", settings(link="http://page"))
    shutil.copy2(tmp_path / "a.settings", tmp_path / "b.settings")
    assert stat.S_IMODE((tmp_path / "b.settings").stat().st_mode) == 0o600
    with pytest.raises(OSError, match="a copy from elsewhere"):
        read_private(tmp_path / "b.settings")
    (tmp_path / "a.settings").rename(tmp_path / "c.settings")
    assert read_private(tmp_path / "c.settings").link == "http://page"


def test_a_secret_in_a_file_stays_there_and_one_in_a_variable_is_left_to_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    channels = {
        "webhook": {"url": {"file": "hook.txt"}, "secret": {"env": "KEY"}},
        "mail": {"password": {"env": "MISSING"}},
    }
    write_private(tmp_path / "a.settings", settings(channels=channels), {"KEY": "abc"})
    left = read_private(tmp_path / "a.settings")
    assert left.channels["webhook"] == {"url": {"file": str(tmp_path / "hook.txt")}, "secret": "abc"}
    assert left.channels["mail"] == {"password": {"env": "MISSING"}}


def test_what_a_process_left_that_never_recorded_anything_is_deleted_after_an_hour(
    folder: Path, store: SqliteStore
) -> None:
    path = private_file(folder, JournalName("r", "a", 0, 7))
    write_private(path, settings(link="http://page"))
    registry, written = RunSettingsRegistry(folder, store), path.stat().st_mtime
    registry.delete_unneeded(lambda: written + 3599)
    assert path.exists()
    registry.delete_unneeded(lambda: written + 3601)
    assert not path.parent.exists()


def test_a_run_that_cannot_write_its_private_settings_warns_and_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A file system that gives every file the same mode, as FAT does.
    create = os.open
    monkeypatch.setattr(
        os, "open", lambda path, flags, mode=0o777, **more: create(path, flags, mode | 0o077, **more)
    )
    config = {"alerts": {"channels": {"log_file": {"path": "a.jsonl"}}}}
    with stepscope.TrainingMonitor(config, run="r", directory=folder) as monitor:
        monitor.log({"loss": 1.0})
    monkeypatch.undo()
    assert caplog.text.count("Channels, exporters and links of this run have no effect") == 1
    assert list(list_private(folder)) == []
    assert stepscope.open_store(folder).run("r").status == "finished"
