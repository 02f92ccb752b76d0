"""Detectors get their options from settings, fail separately, and their results become a verdict."""

import logging

import numpy as np
import pytest

from stepscope import plugins
from stepscope.analysis import diagnose as diagnosing
from stepscope.analysis.detector_registry import known_detectors, make_detectors, options_of
from stepscope.analysis.diagnose import Diagnostician
from stepscope.detectors.learning.num_nonfinite import NotFinite
from stepscope.errors import ConfigError
from stepscope.schema.finding import Finding, severity_of
from stepscope.schema.window import Window
from tests.detectors.simulated import diagnose, going_well

EVERY = sorted(known_detectors())
OF_TIME = (
    "hostmem.leak", "eval.dominates", "ckpt.stall", "ckpt.safety", "compile.recompile", "compile.graph_break",
    "cfg.cudnn_benchmark", "input.loader_config", "run.stall",
)  # fmt: skip
"""Detectors that need no certain number of steps."""


def test_a_detector_file_is_named_after_its_id():
    assert {name.replace(".", "_") for name in EVERY} <= set(plugins.names("detectors"))


@pytest.mark.parametrize("name", EVERY)
def test_a_detector_declares_what_it_needs(name):
    kind = known_detectors()[name]
    assert kind.id == name
    assert kind.requires or name == "run.stall", "A run may stall before it has recorded anything."
    assert kind.min_steps >= (0 if name in OF_TIME else 1)
    assert kind.title
    assert options_of(kind) or name in ("cfg.debug_left_on", "compile.unused"), "It has a threshold to set."
    assert set(kind.explains) <= set(EVERY)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"input.wait": {}}, "There is no detector 'input.wait'; there are: act.dead, amp.scaler, cfg."),
        ({"host.gc": {"shar": 1}}, "detectors.host.gc.shar does not exist; host.gc has: enabled, share, "),
        ({"host.gc": {"share": "1 %"}}, "share is '1 %'; it must be a number from 0.001 to 1."),
        ({"host.gc": {"share": 2}}, "share is 2; it must be a number from 0.001 to 1."),
        ({"host.gc": {"share": float("nan")}}, "share is nan; it must be a number"),
        ({"host.gc": {"pauses": 2.5}}, "pauses is 2.5; it must be a whole number of at least 1."),
        ({"host.gc": {"pauses": True}}, "pauses is True; it must be a whole number"),
        ({"host.gc": {"enabled": "no"}}, "enabled is 'no'; it must be true or false."),
    ],
)
def test_a_wrong_option_is_a_clear_error(settings, said):
    with pytest.raises(ConfigError) as error:
        make_detectors(settings)
    assert said in str(error.value)


@pytest.mark.parametrize(("cause", "is_explained"), [(0.6, True), (0.3, True), (0.1, False), (None, True)])
def test_a_problem_is_explained_only_by_one_that_takes_most_of_its_time(cause, is_explained):
    class Reports:
        is_optional, least_ranks, requires, min_steps, for_each_rank = False, 1, (), 0, False
        in_steady_state, in_finite_values = False, False

        def __init__(self, name, share, explains=()):
            self.id = self.title = name
            self.explains, self._share = explains, share

        def examine(self, rank, window):
            return Finding(
                self.id, self.title, f"{self.id}.", "", "warning", 0.9, 0.0, 1.0, share=self._share
            )

    doctor = Diagnostician({})
    doctor._detectors = [Reports("cause", cause, ("symptom",)), Reports("symptom", 0.5)]
    findings = doctor.examine(Window("r", "s", ())).findings
    assert {finding.id for finding in findings} == ({"cause"} if is_explained else {"cause", "symptom"})


def test_without_enough_steps_there_is_no_finding(tmp_path):
    diagnosis = diagnose(tmp_path, going_well(0, 12))
    assert diagnosis.findings == ()
    assert (diagnosis.verdict.id, diagnosis.verdict.severity) == ("few_steps", "unknown")
    assert "20 are needed" in diagnosis.verdict.headline
    [wait] = [check.why_not for check in diagnosis.considered if check.id == "input.exposed_wait"]
    assert wait.startswith("Needs at least 30 steps after the warm-up; ")


def test_a_run_whose_steps_are_not_timed_says_what_to_do(tmp_path):
    diagnosis = diagnose(tmp_path, {"loss": np.linspace(2, 1, 300)})
    assert (diagnosis.verdict.severity, diagnosis.verdict.tries) == (
        "unknown",
        ("monitor.watch(model, optimizer)",),
    )
    [creep] = [check.why_not for check in diagnosis.considered if check.id == "step.creep"]
    assert creep == "Needs step_seconds, which is not recorded."


def test_a_run_without_data_has_an_unknown_verdict():
    diagnosis = Diagnostician({}).examine(None)
    assert diagnosis.verdict.severity == "unknown"
    assert {check.id for check in diagnosis.considered} == set(EVERY)


def test_a_run_without_steps_has_passed_no_check_and_each_says_so():
    switched_off = {"host.gc": {"enabled": False}}
    diagnosis = Diagnostician(switched_off).examine(None)
    assert not any(check.result == "passed" for check in diagnosis.considered)
    assert {check.why_not for check in diagnosis.considered} == {
        "No steps were recorded.",
        "Disabled in the settings.",
    }


def test_every_detector_is_either_a_finding_or_considered(tmp_path):
    run = going_well(0, 300)
    run["loss"][200:] = np.nan
    diagnosis = diagnose(tmp_path, run)
    assert sorted(check.id for check in (*diagnosis.findings, *diagnosis.considered)) == EVERY


def test_a_detector_that_fails_is_logged_once_and_does_not_stop_the_others(tmp_path, monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(NotFinite, "examine", broken)
    run = going_well(0, 800)
    run["loss"][600] *= 50
    with caplog.at_level(logging.ERROR):
        diagnosis = diagnose(tmp_path, run)
        doctor = diagnosing.Diagnostician({})
        for _ in range(3):
            doctor.examine(None)
    assert [finding.id for finding in diagnosis.findings] == ["conv.spike"]
    assert [check.why_not for check in diagnosis.considered if check.id == "num.nonfinite"] == [
        "The detector failed: ZeroDivisionError."
    ]
    assert caplog.text.count("Detector num.nonfinite failed") == 1


@pytest.mark.parametrize(
    ("share", "severity"),
    [
        (0.0, "info"),
        (0.0199, "info"),
        (0.02, "notice"),
        (0.05, "warning"),
        (0.15, "warning"),
        (0.9, "warning"),
    ],
)
def test_the_recoverable_share_gives_the_severity(share, severity):
    assert severity_of(share) == severity


def test_a_finding_has_the_json_fields_of_the_page(tmp_path):
    run = going_well(0, 800)
    run["loss"][600] *= 50
    [finding] = diagnose(tmp_path, run).findings
    fields = finding.as_dict()
    assert list(fields) == [
        "id", "key", "title", "headline", "detail", "severity", "confidence", "share", "open", "muted",
        "first_step", "last_step", "first_time", "last_time", "rank", "device", "where", "evidence", "chart",
        "ruled_out", "remedies", "tries", "estimate", "how", "refs",
    ]  # fmt: skip
    assert fields["key"] == fields["id"] == "conv.spike"
    assert (fields["open"], fields["muted"]) == (True, False)
    assert set(fields["chart"]) == {"keys", "from", "to"}
    assert set(fields["evidence"][0]) == {"label", "value", "note"}
    assert set(fields["remedies"][0]) == {"text", "code", "framework"}
