"""Numbers alone tell when gradients are unwell, and in which layer."""

from __future__ import annotations

import math

import pytest

from stepscope.model_stats.gradient_health import GradientHistory, Thresholds, judge


def figures(total: float | None = None, **layers: float) -> dict[str, float]:
    named = {f"gradient_norm/{name}": norm for name, norm in layers.items()}
    return {"gradient_norm": math.hypot(*layers.values()) if total is None else total, **named}


def history(times: int, *, length: int = 100, **layers: float) -> GradientHistory:
    past = GradientHistory(length)
    for _ in range(times):
        past.add(figures(**layers))
    return past


def test_healthy_norms_raise_nothing() -> None:
    assert judge(figures(a=1.0, b=2.0), history(20, a=1.0, b=2.0)) == []


def test_the_first_layer_in_order_of_registration_is_named() -> None:
    (finding,) = judge(figures(a=1.0, b=math.inf, c=math.nan, d=1.0), GradientHistory())
    assert (finding.kind, finding.layer, finding.layers) == ("not_finite", "b", ("b", "c"))
    assert "from b to c" in finding.sentence
    assert finding.limit is None


def test_when_no_layer_is_finite_the_loss_is_named_as_the_cause() -> None:
    (finding,) = judge(figures(a=math.nan, b=math.nan), GradientHistory())
    assert "Check the loss first." in finding.sentence


def test_a_whole_that_is_not_finite_needs_no_layers() -> None:
    (finding,) = judge({"gradient_norm": math.nan}, GradientHistory())
    assert (finding.kind, finding.layer, finding.layers) == ("not_finite", None, ())


@pytest.mark.parametrize(("norm", "explodes"), [(99.0, False), (101.0, True)])
def test_a_layer_explodes_at_a_hundred_times_its_median(norm: float, explodes: bool) -> None:
    problems = judge(figures(1.0, a=norm, b=1.0), history(10, a=1.0, b=1.0))
    assert [(problem.kind, problem.layer) for problem in problems] == (
        [("exploding", "a")] if explodes else []
    )


def test_with_little_to_compare_only_a_huge_norm_explodes() -> None:
    past = history(9, a=1.0)
    assert judge(figures(a=9e3), past) == []
    assert [problem.kind for problem in judge(figures(a=2e4), past)] == ["exploding"]


def test_a_single_spike_does_not_move_what_is_usual() -> None:
    past = history(20, a=1.0)
    past.add(figures(a=1e6))
    assert past.median("gradient_norm/a", least=10) == 1.0


def test_old_norms_are_forgotten() -> None:
    past = history(10, length=10, a=1.0)
    for _ in range(10):
        past.add(figures(a=50.0))
    assert past.median("gradient_norm/a", least=10) == 50.0
    assert judge(figures(a=101.0), past) == []


def test_a_layer_that_begins_to_learn_does_not_explode() -> None:
    assert judge(figures(a=1.0, b=1e-3), history(20, a=1.0, b=0.0)) == []


def test_vanishing_must_last() -> None:
    tiny = figures(a=1e-9, b=1.0)
    past = GradientHistory()
    kinds = []
    for _ in range(4):
        kinds.append([(problem.kind, problem.layer) for problem in judge(tiny, past)])
        past.add(tiny)
    assert kinds == [[], [], [("vanishing", "a")], [("vanishing", "a")]]


def test_what_is_small_depends_on_the_weights() -> None:
    now = Thresholds(persistence=1)
    large = {**figures(a=1e-6, b=1.0), "weight_norm/a": 100.0}
    assert [problem.layer for problem in judge(large, GradientHistory(), now)] == ["a"]
    small = {**figures(a=1e-9, b=1.0), "weight_norm/a": 1e-3}
    assert judge(small, GradientHistory(), now) == []


def test_vanished_gradients_of_all_layers_are_reported_as_such() -> None:
    (finding,) = judge(figures(a=0.0, b=0.0), GradientHistory(), Thresholds(persistence=1))
    assert (finding.kind, finding.layers) == ("vanishing", ("a", "b"))
    assert finding.sentence.startswith("The gradients of all layers have vanished")


def test_a_step_left_out_by_a_loss_scaler_is_not_judged() -> None:
    assert judge({**figures(a=math.inf), "gradient_step_skipped": 1.0}, GradientHistory()) == []
