"""The scores of the zoo: what counts as right, as wrong and as silence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from zoo.answer import HEALTHY, Answer, Said
from zoo.case import Case
from zoo.scoring import Share, Summary, score
from zoo.table import drawn
from zoo.trial import Settings

DETECTORS = {"input.exposed_wait", "input.jitter", "ckpt.stall", "host.gc", "host.oversubscribed"}
SLOW = Case("slow", "slow data", (("input.exposed_wait", "input.jitter"),), ("num_workers|cheaper",))
PAIR = Case("pair", "two faults", (("input.exposed_wait",), ("ckpt.stall",)))
FINE = Case("fine")


def said(name: str, advice: str = "num_workers=2", gain=None) -> Said:
    return Said(name, "warning", f"{name} is the problem.", f"{name} on rank 1", advice, gain)


def answer(*findings: Said, verdict: str = "") -> Answer:
    name = verdict or (findings[0].id if findings else "not_all_checked")
    return Answer(name, "In one sentence.", findings)


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0), (5, 10, 0.237, 0.763), (95, 100, 0.888, 0.978)],
)
def test_the_interval_is_that_of_wilson(count: int, of: int, low: float, high: float) -> None:
    assert Share(count, of).interval == pytest.approx((low, high), abs=0.001)


def test_a_share_of_nothing_is_not_known() -> None:
    assert (Share(0, 0).value, Share(0, 0).interval, str(Share(0, 0))) == (None, (0.0, 1.0), "-")


@pytest.mark.parametrize("name", ["input.exposed_wait", "input.jitter"])
def test_the_expected_finding_and_acceptable_ones_are_right(name: str) -> None:
    result = score(SLOW, answer(said(name)), DETECTORS)
    assert result.is_right
    assert result.named == (name,)
    assert (result.missed, result.false) == ((), ())


def test_another_finding_in_first_place_is_wrong_and_false() -> None:
    result = score(SLOW, answer(said("host.gc"), said("input.exposed_wait")), DETECTORS)
    assert not result.is_named
    assert result.false == ("host.gc",)
    assert result.named == ("input.exposed_wait",)


def test_another_finding_in_second_place_leaves_the_first_cause_right() -> None:
    result = score(SLOW, answer(said("input.exposed_wait"), said("host.gc")), DETECTORS)
    assert (result.is_right, result.false) == (True, ("host.gc",))


def test_a_finding_that_is_true_as_well_is_not_false() -> None:
    case = Case("slow", "slow data", SLOW.expects, also=("host.gc",))
    assert score(case, answer(said("input.jitter"), said("host.gc")), DETECTORS).false == ()


@pytest.mark.parametrize(
    ("advice", "is_right"), [("num_workers=2", True), ("make samples CHEAPER", True), ("buy a disk", False)]
)
def test_advice_must_contain_one_of_the_words(advice: str, is_right: bool) -> None:
    result = score(SLOW, answer(said("input.exposed_wait", advice)), DETECTORS)
    assert result.is_named
    assert result.is_right is is_right


def test_advice_must_not_contain_wrong_words_and_the_text_must_say_where() -> None:
    wrong = Case("slow", "slow data", SLOW.expects, wrong_advice=("num_workers=2",))
    assert not score(wrong, answer(said("input.jitter")), DETECTORS).is_right
    assert score(
        Case("slow", "x", SLOW.expects, names=("rank 1",)), answer(said("input.jitter")), DETECTORS
    ).is_right
    assert not score(
        Case("slow", "x", SLOW.expects, names=("rank 7",)), answer(said("input.jitter")), DETECTORS
    ).is_right


def test_both_faults_of_a_pair_must_be_reported() -> None:
    both = score(PAIR, answer(said("ckpt.stall"), said("input.exposed_wait")), DETECTORS)
    assert both.is_right
    one = score(PAIR, answer(said("ckpt.stall")), DETECTORS)
    assert (one.is_right, one.named, one.missed) == (False, ("ckpt.stall",), ("input.exposed_wait",))


def test_silence_is_an_abstention_unless_the_run_is_called_healthy() -> None:
    silent = score(SLOW, answer(), DETECTORS)
    assert (silent.is_abstained, silent.is_called_healthy, silent.is_right) == (True, False, False)
    healthy = score(SLOW, answer(verdict=HEALTHY), DETECTORS)
    assert (healthy.is_abstained, healthy.is_called_healthy) == (False, True)


def test_a_fault_without_a_detector_is_a_miss() -> None:
    result = score(Case("new", "x", (("data.order",),)), answer(), DETECTORS)
    assert (result.has_detector, result.is_right, result.missed) == (False, False, ("data.order",))


@pytest.mark.parametrize("verdict", ["", HEALTHY])
def test_a_healthy_run_must_be_silent(verdict: str) -> None:
    assert score(FINE, answer(verdict=verdict), DETECTORS).is_right
    alarmed = score(FINE, answer(said("host.gc"), verdict=verdict), DETECTORS)
    assert (alarmed.is_right, alarmed.false) == (False, ("host.gc",))


def test_a_finding_that_was_over_at_the_end_is_a_false_alarm_as_well() -> None:
    earlier = Answer("not_all_checked", "Now nothing.", earlier=(said("host.gc"),))
    assert score(FINE, earlier, DETECTORS).false == ("host.gc",)


def test_a_failure_can_be_expected_and_is_false_otherwise() -> None:
    failed = answer(verdict="status.failed")
    assert score(Case("ends", "x", (("status.failed",),)), failed, DETECTORS).is_right
    assert score(FINE, failed, DETECTORS).false == ("status.failed",)


def test_on_a_busy_machine_contention_is_true_but_names_no_fault() -> None:
    both = answer(said("host.oversubscribed"), said("input.exposed_wait"))
    assert score(SLOW, both, DETECTORS, is_busy=True).is_right
    assert not score(SLOW, both, DETECTORS).is_right
    alone = answer(said("host.oversubscribed"))
    assert score(FINE, alone, DETECTORS, is_busy=True).is_right
    assert not score(FINE, alone, DETECTORS).is_right


def test_contention_that_is_planted_counts_on_a_busy_machine_as_well() -> None:
    case = Case("threads", "too many threads", (("host.oversubscribed",),))
    assert score(case, answer(said("host.oversubscribed")), DETECTORS, is_busy=True).is_right


def test_the_summary_counts_each_detector_and_checks_the_bounds() -> None:
    scores = [
        score(SLOW, answer(said("input.exposed_wait")), DETECTORS),
        score(SLOW, answer(said("host.gc")), DETECTORS),
        score(SLOW, answer(verdict=HEALTHY), DETECTORS),
        score(FINE, answer(), DETECTORS),
    ]
    summary = Summary(scores)
    assert (summary.named.count, summary.named.of) == (1, 3)
    wait, collector = summary.records["input.exposed_wait"], summary.records["host.gc"]
    assert (wait.precision, wait.recall) == (Share(1, 1), Share(1, 3))
    assert collector.precision == Share(0, 1)
    assert [holds for _, holds in summary.bounds] == [False, True, False, True]


def test_faults_must_be_reported_within_sixty_steps_and_gains_are_compared() -> None:
    result = score(SLOW, answer(said("input.exposed_wait", gain=(0.1, 0.3, 0.4))), DETECTORS)
    summary = Summary([replace(result, steps=61, measured_gain=0.35)])
    assert summary.bounds[-1][1] is False
    assert summary.gains == [((0.1, 0.3, 0.4), 0.35)]
    table = drawn([(replace(result, steps=61, measured_gain=0.35), Settings())])
    assert "30%, measured 35%" in table
    assert "measured gain in range   100% (1 of 1" in table


def test_the_table_says_what_was_reported_instead_and_leaves_low_doses_out() -> None:
    wrong = score(SLOW, answer(said("host.gc")), DETECTORS)
    table = drawn([(wrong, Settings()), (wrong, Settings(dose=0.25))])
    assert "host.gc, warning: host.gc is the problem." in table
    assert "first cause is right     0% (0 of 1;" in table
