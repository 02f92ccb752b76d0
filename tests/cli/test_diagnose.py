"""`stepscope diagnose`: what is wrong with a run, the evidence, and what to do."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from stepscope import TrainingMonitor, open_store
from stepscope.cli.diagnose import reports_until_end
from stepscope.cli.main import main
from stepscope.store.open import open_marks


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diagnose") / "store"
    with TrainingMonitor(run="lost", directory=folder) as monitor:
        for step in range(300):
            monitor.log_training_step(loss=math.nan if step >= 200 else 1.0 + 0.01 * (step % 5))
    noise = np.random.default_rng(0).normal(1, 0.05, 300).tolist()
    with TrainingMonitor(run="well", directory=folder) as monitor:
        for step, deviation in enumerate(noise):
            monitor.log(
                {"loss": deviation, "step_seconds": 0.02 * deviation, "phase/data_seconds": 1e-4}, step
            )
    return folder


@pytest.fixture(autouse=True)
def _in_the_store(store, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_DIR", str(store))
    monkeypatch.setenv("COLUMNS", "100")


def printed(capsys, *arguments):
    assert main(["diagnose", *arguments]) == 0
    return capsys.readouterr().out


def test_a_page_has_verdict_evidence_remedy_code_and_what_was_considered(capsys):
    page = printed(capsys, "lost")
    assert page.splitlines()[:2] == ["lost  finished", "  Loss became NaN at step 200."]
    assert "1. Loss or gradients are not finite  critical, confidence 99%  num.nonfinite" in page
    assert "- last finite value  1.04  (at step 199)" in page
    assert "       if not torch.isfinite(loss):" in page
    assert "Needs phase/data_seconds or device/data_seconds, which is not recorded." in page
    assert max(map(len, page.splitlines())) <= 120


def test_a_healthy_run_has_a_healthy_verdict(capsys):
    page = printed(capsys, "well")
    pattern = r"^  No problem found by \d+ checks; \d+ could not run. \d\d\.\d ms a step\.$"
    assert re.search(pattern, page, re.MULTILINE)
    assert "input.exposed_wait: Steps wait for data 0.5% of the time" in page
    assert re.search(r"^\d+ checks that do not apply to this run: see --json$", page, re.MULTILINE)
    assert "dist.straggler" not in page


def test_a_finding_that_was_muted_on_the_page_is_marked_and_is_not_the_verdict(capsys, store):
    marks = open_marks(store)
    marks.change(open_store(store).run("lost").id, muted=["num.nonfinite"])
    try:
        output = json.loads(printed(capsys, "lost", "--json"))
        assert [finding["muted"] for finding in output["findings"]] == [True]
        assert output["verdict"]["id"] != "num.nonfinite"
        assert "critical, confidence 99%, muted  num.nonfinite" in printed(capsys, "lost")
    finally:
        marks.change(open_store(store).run("lost").id, muted=[])
        marks.close()


def test_a_finding_that_is_marked_as_wrong_is_muted_in_the_project_until_it_is_unmuted(capsys):
    said = printed(capsys, "lost", "--wrong", "num.nonfinite", "--note", "planted")
    assert said == (
        "num.nonfinite is marked as wrong and muted in the project default. "
        "Undo with: stepscope diagnose lost --unmute num.nonfinite\n"
    )
    report = json.loads(printed(capsys, "lost", "--json"))
    assert [finding["muted"] for finding in report["findings"]] == [True]
    assert report["verdict"]["id"] != "num.nonfinite"
    (given,) = report["feedback"]
    assert (given["opinion"], given["note"], given["run_id"]) == ("wrong", "planted", report["run"])
    said = printed(capsys, "lost", "--unmute", "num.nonfinite")
    assert said == "num.nonfinite is reported again in the project default.\n"
    report = json.loads(printed(capsys, "lost", "--json"))
    assert (report["feedback"], report["verdict"]["id"]) == ([], "num.nonfinite")


def test_an_opinion_on_a_finding_that_is_not_there_names_those_that_are(capsys):
    assert main(["diagnose", "lost", "--not-wanted", "conv.spike"]) == 1
    assert "has no finding 'conv.spike'; it has: num.nonfinite." in capsys.readouterr().err
    assert main(["diagnose", "lost", "--unmute", "conv.spike"]) == 1
    assert "No finding 'conv.spike' is muted in the project default." in capsys.readouterr().err


def test_an_opinion_without_a_finding_is_refused(capsys):
    assert main(["diagnose", "lost", "--wrong", ""]) == 1
    assert "has no finding ''; it has: num.nonfinite." in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", "lost", "--note", "planted"])
    assert ended.value.code == 2
    assert "--note needs the finding that it is about" in capsys.readouterr().err


def test_without_a_name_the_newest_run_is_meant(capsys):
    assert printed(capsys).startswith("well  finished")


def test_json_has_the_verdict_the_findings_and_the_rest(capsys):
    output = json.loads(printed(capsys, "lost", "--json"), parse_constant=pytest.fail)
    assert output["name"] == "lost"
    assert (output["verdict"]["id"], output["verdict"]["severity"]) == ("num.nonfinite", "critical")
    assert output["verdict"]["steps"] == [200, 299]
    assert [finding["key"] for finding in output["findings"]] == ["num.nonfinite"]
    finding = output["findings"][0]
    assert (finding["remedy"], finding["code"]) == (
        finding["remedies"][0]["text"],
        finding["remedies"][0]["code"],
    )
    assert finding["gain"] == finding["estimate"]
    results = {check["id"]: check["result"] for check in output["checks"]}
    assert results["num.nonfinite"] == "finding"
    assert results["input.exposed_wait"] == "could not run"
    assert set(results.values()) == {"finding", "passed", "could not run", "skipped"}
    assert all(check["why"] for check in output["checks"])
    assert output["earlier"] == []


def test_as_many_checks_could_not_run_as_the_verdict_says(capsys):
    report = json.loads(printed(capsys, "well", "--json"))
    not_run = sum(check["result"] == "could not run" for check in report["checks"])
    assert f"{not_run} could not run" in report["verdict"]["headline"]


def test_earlier_findings_are_listed_separately(capsys, tmp_path):
    folder = tmp_path / "long"
    losses = np.random.default_rng(0).normal(1, 0.05, 3000)
    losses[:400] = math.nan
    with TrainingMonitor(run="long", directory=folder) as monitor:
        for loss in losses[:500].tolist():
            monitor.log_training_step(loss=loss)
    with TrainingMonitor(run="long", directory=folder, resume=True) as monitor:
        for step, loss in enumerate(losses[500:].tolist(), 500):
            monitor.log_training_step(loss=loss, step=step)
    page = printed(capsys, "long", "--store", str(folder))
    assert "earlier findings, not in the newest steps" in page
    output = json.loads(printed(capsys, "long", "--store", str(folder), "--json"))
    assert [(finding["key"], finding["open"]) for finding in output["earlier"]] == [("num.nonfinite", False)]
    assert output["findings"] == []


def test_an_unknown_run_fails_with_names_like_it(capsys):
    assert main(["diagnose", "lots"]) == 1
    assert "did you mean 'lost'?" in capsys.readouterr().err


def test_a_run_is_diagnosed_with_the_options_it_was_recorded_with(capsys, folder):
    options = {"detectors": {"host.gc": {"enabled": False}}}
    with TrainingMonitor(options, run="own", directory=folder) as monitor:
        monitor.log_training_step(loss=1.0)
    Path("stepscope.yaml").write_text("detectors:\n  num.nonfinite: {enabled: false}\n")
    output = json.loads(printed(capsys, "own", "--store", str(folder), "--json"))
    off = [check["id"] for check in output["checks"] if "Disabled" in check["why"]]
    assert off == ["host.gc"]


def test_a_live_run_is_reported_again_when_its_findings_change_and_when_it_ends(folder, until):
    monitor = TrainingMonitor(run="live", directory=folder)
    monitor.start_monitoring()
    for step in range(100):
        monitor.log({"loss": 1.0 + 0.01 * (step % 5), "step_seconds": 0.02}, step)
    store = open_store(folder)

    def diverge():
        monitor.log({"loss": math.nan}, 100)
        until(lambda: len(store.run("live").series("loss")) == 101)

    changes = [lambda: None, diverge, monitor.stop_monitoring]
    reports = list(reports_until_end(store, store.run("live"), lambda _: changes.pop(0)()))
    assert [report["status"] for report in reports] == ["running", "running", "finished"]
    ids = [[finding["id"] for finding in report["findings"]] for report in reports]
    assert ids == [[], ["num.nonfinite"], ["num.nonfinite"]]
    assert changes == []


def test_watching_a_run_that_has_ended_prints_one_line_of_json(capsys):
    (line,) = printed(capsys, "lost", "--watch", "--json").splitlines()
    assert json.loads(line)["status"] == "finished"
