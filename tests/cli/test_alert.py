"""`stepscope alert`: active and past alerts, silences, tests of channels, checks of rules."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import stepscope
from stepscope.alerts.page_rules import PageRules
from stepscope.alerts.silences import Silences
from stepscope.cli.main import main
from stepscope.schema.alert import AlertDetail, Notice
from stepscope.schema.record import Event
from stepscope.schema.run import Process
from stepscope.store.sqlite import SqliteStore


@pytest.fixture
def store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_DIR", str(folder))
    monkeypatch.setenv("COLUMNS", "120")
    with stepscope.TrainingMonitor({"agent": {"interval_s": 0.1}}, run="diverged") as monitor:
        monitor.log_training_step(loss=float("nan"))
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_history_has_the_alert_with_its_run_and_message(capsys) -> None:
    assert main(["alert", "history"]) == 0
    out = capsys.readouterr().out
    assert "critical" in out
    assert "diverged" in out
    assert "nonfinite_loss" in out
    assert "\n    Loss is not finite" in out


@pytest.mark.usefixtures("store")
def test_history_as_json_has_the_notices(capsys) -> None:
    assert main(["alert", "history", "diverged", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert [alert["rule"] for alert in output["alerts"]] == ["nonfinite_loss"]
    assert [notice["channel"] for notice in output["notices"]] == ["console"]


@pytest.mark.usefixtures("store")
def test_nothing_fires_after_a_run_has_ended(capsys) -> None:
    assert main(["alert", "list"]) == 0
    assert "No alerts are firing." in capsys.readouterr().err


def test_rules_that_hold_here_are_listed_with_their_conditions(capsys) -> None:
    assert main(["alert", "list", "--rules", "--json"]) == 0
    rules = {rule["name"]: rule for rule in json.loads(capsys.readouterr().out)}
    assert rules["stalled"]["when"] == 'status == "stalled"'
    assert rules["nonfinite_loss"]["severity"] == "critical"


@pytest.mark.slow
def test_every_rule_is_listed_with_where_it_comes_from(store: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "stepscope.yaml").write_text("alerts: {rules: [{name: mine, when: 'loss > 5'}]}\n")
    page = PageRules(store)
    page.put({"name": "slow", "when": "step_seconds > 1", "for": "1m", "run": "div*"})
    page.switch("gpu_hot", on=False)
    assert main(["alert", "rules"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["slow"].split()[1:3] == ["page", "warning"]
    assert lines["slow"].endswith("step_seconds > 1 in div*")
    assert lines["mine"].split()[1] == "configuration"
    assert lines["gpu_hot"].split()[1:3] == ["usual", "off"]
    assert main(["alert", "rules", "--json"]) == 0
    rules = {rule["name"]: rule for rule in json.loads(capsys.readouterr().out)}
    assert (rules["slow"]["origin"], rules["slow"]["for"], rules["gpu_hot"]["enabled"]) == (
        "page",
        "1m",
        False,
    )


def test_a_silence_is_created_listed_and_ended(store: Path, capsys) -> None:
    assert main(["alert", "silence", "gpu_*", "--run", "diverged", "--for", "2h", "--reason", "known"]) == 0
    [silence] = Silences(store).read().silences
    assert (silence.rule, silence.run, silence.reason) == ("gpu_*", "diverged", "known")
    assert silence.until_ns - time.time_ns() == pytest.approx(7200e9, rel=0.01)
    capsys.readouterr()
    assert main(["alert", "list"]) == 0
    assert f"silence {silence.id}: gpu_* in diverged until " in capsys.readouterr().out
    assert main(["alert", "unsilence", silence.id]) == 0
    assert Silences(store).read().silences == ()
    assert main(["alert", "unsilence", silence.id]) == 1
    assert "There is no silence" in capsys.readouterr().err


def test_a_silence_of_a_rule_or_a_run_that_there_is_not_is_doubted(store: Path, capsys) -> None:
    assert main(["alert", "silence", "nonfinite_los", "--run", "nope*"]) == 0
    err = capsys.readouterr().err
    assert "nonfinite_los in runs that match nope* is muted until " in err
    assert "There is no rule 'nonfinite_los'; did you mean 'nonfinite_loss'?" in err
    assert "There is no run 'nope*' yet; there are: diverged." in err
    assert main(["alert", "silence", "gpu_*", "--run", "div*"]) == 0
    assert "There is no" not in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_a_history_of_no_alert_is_empty(capsys) -> None:
    assert main(["alert", "history", "--limit", "0"]) == 0
    assert "nonfinite_loss" not in capsys.readouterr().out


def test_history_names_alert_and_run_of_a_notice_that_was_not_delivered(store: Path, capsys) -> None:
    detail = AlertDetail("nonfinite_loss", "critical", "It is NaN.", 5)
    notice = Notice("n", "resolved", "diverged", "diverged", "p", "h", time.time_ns(), (detail,))
    (run,) = stepscope.open_store(store).runs()
    opened = SqliteStore(store / "store.sqlite")
    with opened.transaction():
        opened.alert_book.post("webhook", replace(notice, run_id=run.id))
        opened.alert_book.give_up(2, 7, "it answered 404")
    opened.close()
    assert main(["alert", "history"]) == 0
    assert (
        " nonfinite_loss (resolved) of diverged by webhook: given up: it answered 404"
        in capsys.readouterr().out
    )


def test_an_alert_is_acknowledged_by_its_number(store: Path, capsys) -> None:
    assert main(["alert", "ack", "1"]) == 0
    assert Silences(store).read().acknowledged == {1}
    assert main(["alert", "ack", "99"]) == 1
    assert "There is no alert 99" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["2", "h", "2x", "2GiB", "9e999h", "0s", "367d"])
def test_a_time_that_is_none_is_refused(given: str, capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main(["alert", "silence", "x", "--for", given])
    assert left.value.code == 2
    assert "such as 30m" in capsys.readouterr().err


def test_a_silence_until_an_odd_year_does_not_hide_the_list(store: Path, capsys) -> None:
    silence = Silences(store).silence("x", "*", now_ns=0, until_ns=10**27)
    try:
        assert main(["alert", "list"]) == 0
        assert f"silence {silence.id}: x in * until -" in capsys.readouterr().out
    finally:
        Silences(store).end_silence(silence.id)


def test_a_channel_is_tried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stepscope.yaml").write_text(
        f"alerts: {{channels: {{log_file: {{path: {tmp_path}/alerts.jsonl}}}}}}\n"
    )
    assert main(["alert", "test", "log_file"]) == 0
    assert json.loads((tmp_path / "alerts.jsonl").read_text())["kind"] == "test"
    assert f"Sent to {tmp_path}/alerts.jsonl." in capsys.readouterr().err
    assert main(["alert", "test", "log_fil"]) == 1
    assert "did you mean 'log_file'?" in capsys.readouterr().err


def test_a_channel_that_does_not_get_through_fails_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stepscope.yaml").write_text("alerts: {channels: {webhook: {url: 'http://127.0.0.1:1/x'}}}\n")
    assert main(["alert", "test", "webhook"]) == 1
    said = capsys.readouterr().err
    assert "127.0.0.1" in said
    assert "/x" not in said


def test_a_rule_file_is_checked_and_the_place_of_a_mistake_shown(tmp_path: Path, capsys) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("alerts: {rules: [{name: slow, when: 'p50(step_seconds, 2m) > 1.5 * baseline'}]}\n")
    bad.write_text("alerts: {rules: [{name: slow, when: 'p50(step_seconds, 2m) >> 1'}]}\n")
    assert main(["alert", "check", str(good)]) == 0
    assert "no problems, 1 rule of its own" in capsys.readouterr().out
    assert main(["alert", "check", str(bad)]) == 1
    said = capsys.readouterr().err
    assert "slow" in said
    assert "^" in said


@pytest.mark.slow
def test_a_command_that_succeeds_with_a_critical_alert_exits_with_three(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("STEPSCOPE_DIR", str(folder))
    code = "import stepscope\nwith stepscope.TrainingMonitor() as m: m.log({'loss': float('%s')})"
    command = ["run", "--store", str(folder), "--fail-on", "critical", "--", sys.executable, "-c"]
    assert main([*command, code % "nan"]) == 3
    assert "critical: nonfinite_loss" in capsys.readouterr().err
    assert main([*command, code % "1"]) == 0


@pytest.mark.usefixtures("store")
def test_a_metric_that_no_run_has_is_doubted_and_the_rule_still_fine(tmp_path: Path, capsys) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "alerts:\n  rules:\n    - {name: a, when: 'los > 1'}\n"
        "    - {name: b, when: 'cpu/utilization_ratio > 0.9 and loss > 1'}\n"
    )
    assert main(["alert", "check", str(path)]) == 0
    said = capsys.readouterr().err
    assert "a: There is no metric 'los'; did you mean 'loss'?" in said
    assert "b: " not in said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rules": [{"name": "x", "when": "loss >"}]}, "x"),
        ({"disabled": ["nonfinite_los"]}, "did you mean 'nonfinite_loss'?"),
        ({"quiet_hours": "late"}, "22:00-07:00"),
    ],
)
def test_a_monitor_refuses_rules_that_make_no_sense(settings: dict, said: str) -> None:
    with pytest.raises(stepscope.errors.ConfigError, match=said.replace("?", r"\?")):
        stepscope.TrainingMonitor({"alerts": settings})


def test_the_list_names_rules_of_live_runs_that_use_unrecorded_keys(tmp_path: Path, capsys) -> None:
    store = SqliteStore(tmp_path / "store" / "store.sqlite")
    fields = {"host": "h", "text": "Alert rule 'typo' uses a metric that is not recorded.", "rule": "typo"}
    with store.transaction():
        for run, status in (("live", "running"), ("over", "finished")):
            store.put_process(Process(run, run, "p", "s", 0, "h", 7, "rank", started_ns=5, status=status))
            store.put_event(run, Event("notice", 6, None, None, "s", fields))
            store.put_event(run, Event("notice", 6, None, None, "s", {"host": "h", "text": "no fan"}))
    store.close()
    assert main(["alert", "list", "--store", str(tmp_path / "store")]) == 0
    said = capsys.readouterr().err
    assert "live: Alert rule 'typo' uses a metric that is not recorded." in said
    assert "over" not in said
    assert "fan" not in said
    assert main(["alert", "list", "--json", "--store", str(tmp_path / "store")]) == 0
    [warning] = json.loads(capsys.readouterr().out)["unrecorded"]
    assert (warning["run"], warning["rule"]) == ("live", "typo")


def test_a_threshold_over_a_metric_that_no_run_has_is_doubted_too(tmp_path: Path, capsys) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("alerts: {thresholds: {los: 1, gpu_memory_percent: 90}}\n")
    assert main(["alert", "check", str(path), "--store", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert "los: There is no metric 'los'" in said
    assert "gpu_memory" not in said


def test_rules_of_a_live_run_s_own_settings_are_listed_with_the_run(tmp_path: Path, capsys) -> None:
    store = SqliteStore(tmp_path / "store" / "store.sqlite")
    rule = {"name": "own", "when": "loss > 3"}
    alerts = {
        "enabled": True,
        "rules": [rule],
        "thresholds": 5,
        "disabled": ["crashed"],
        "channels": {"x": {}},
    }
    with store.transaction():
        for run, status in (("live", "running"), ("over", "finished")):
            facts = {"alerts": alerts}
            store.put_process(Process(run, run, "p", "s", 0, "h", 7, "rank", 5, status, facts=facts))
    store.close()
    assert main(["alert", "rules", "--json", "--store", str(tmp_path / "store")]) == 0
    listed = json.loads(capsys.readouterr().out)
    own = [(rule["name"], rule["origin"], rule["enabled"]) for rule in listed if rule["run"] == "live"]
    assert own == [("crashed", "configuration", False), ("own", "configuration", True)]
    assert not any(rule["run"] == "over" for rule in listed)
