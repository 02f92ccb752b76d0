"""The share of each phase in a step, if all steps have phases or only some."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.build import WindowRequest, build_window
from stepscope.analysis.phase_shares import phase_shares
from stepscope.views.metrics.series_summaries import SeriesSummaries
from stepscope.views.steps.phase_breakdown import phases_of
from tests.views.made import PHASES, RUN, Made, trained


def shares(made: Made) -> dict[str, float]:
    run = made.run()
    return {phase.phase: phase.share for phase in phases_of(run, SeriesSummaries(run.summaries()))}


def verdict_shares(made: Made) -> dict[str, float]:
    """The shares that the verdict uses, which are of the newest steps."""
    window = build_window(made.store, RUN, WindowRequest())
    return {name: share for name, share in phase_shares(window.ranks[0], steady=False).items() if share}


def test_the_phases_of_a_step_add_up_and_are_in_order(made: Made) -> None:
    made.process()
    trained(made, data=0.02, optimizer=0.01)
    run = made.run()
    phases = phases_of(run, SeriesSummaries(run.summaries()))
    assert [phase.phase for phase in phases] == ["data", "forward", "backward", "optimizer"]
    assert sum(phase.share for phase in phases) == pytest.approx(1.0)
    assert phases[0].mean_s == pytest.approx(0.02)
    assert phases[0].key == "phase/data_seconds"


def test_all_ranks_count(made: Made) -> None:
    for rank, waits in enumerate((0.0, 0.01)):
        made.process(rank=rank, pid=rank)
        trained(made, rank=rank, data=waits)
    assert shares(made)["data"] == pytest.approx(1 / 3)


def sampled(made: Made, ratio: float | np.ndarray, kept: np.ndarray, forward: np.ndarray) -> None:
    """Writes steps that all have their time and wait for data; only some have all phases."""
    steps = len(forward)
    data, backward = np.full(steps, 0.01), np.full(steps, 0.02)
    whole = data + forward + backward
    made.log({"step_seconds": whole, "phase/data_seconds": data})
    rest = {f"phase/{name}_seconds": 0.0 for name in PHASES if name not in ("data", "forward", "backward")}
    made.log(
        {
            "phase/forward_seconds": forward[kept],
            "phase/backward_seconds": backward[kept],
            **rest,
            "phase/sampled_ratio": np.broadcast_to(ratio, steps)[kept],
        },
        kept,
    )


def test_sampled_steps_stand_for_all(made: Made) -> None:
    made.process()
    sampled(made, 0.1, np.arange(0, 1000, 10), np.full(1000, 0.01))
    phase_shares = shares(made)
    assert phase_shares["data"] == pytest.approx(0.25)
    assert phase_shares["forward"] == pytest.approx(0.25)
    assert phase_shares["backward"] == pytest.approx(0.5)


def test_a_step_with_a_lower_sampling_probability_counts_for_more(made: Made) -> None:
    """The slow first half was sampled completely, every tenth step of the fast second half."""
    made.process()
    forward = np.r_[np.full(500, 0.07), np.full(500, 0.01)]
    kept = np.r_[np.arange(500), np.arange(500, 1000, 10)]
    ratios = np.r_[np.ones(500), np.full(500, 0.1)]
    sampled(made, ratios, kept, forward)
    phase_shares = shares(made)
    assert phase_shares["forward"] == pytest.approx(0.04 / 0.07, rel=1e-6)
    assert sum(phase_shares.values()) == pytest.approx(1.0)
    assert verdict_shares(made) == pytest.approx(phase_shares)


def test_a_sampling_probability_applies_until_the_next_one(made: Made) -> None:
    made.process()
    forward = np.r_[np.full(500, 0.07), np.full(500, 0.01)]
    kept = np.r_[np.arange(500), np.arange(500, 1000, 10)]
    made.log({"step_seconds": forward + 0.03, "phase/data_seconds": 0.01})
    made.log({"phase/forward_seconds": forward[kept], "phase/backward_seconds": 0.02}, kept)
    made.log({"phase/sampled_ratio": [1.0, 0.1]}, [0, 500])
    assert shares(made)["forward"] == pytest.approx(0.04 / 0.07, rel=1e-6)


def test_one_long_step_that_happens_to_be_sampled_does_not_stand_for_usual_ones(made: Made) -> None:
    """A step takes 30 ms, 20 of them other time; two of 1,000 wait for a second in backward, one sampled."""
    made.process()
    backward = np.full(1000, 0.01)
    backward[[500, 777]] = 1.0
    kept = np.arange(0, 1000, 50)
    made.log({"step_seconds": backward + 0.02})
    made.log(
        {
            "phase/backward_seconds": backward[kept],
            "phase/other_seconds": np.full(20, 0.02),
            "phase/sampled_ratio": np.full(20, 0.02),
        },
        kept,
    )
    expected = float(backward.sum() / (backward + 0.02).sum())
    assert shares(made)["backward"] == pytest.approx(expected, rel=1e-6)
    assert verdict_shares(made) == pytest.approx(shares(made))


def test_sampled_steps_that_are_longer_by_chance_do_not_take_from_other_time(made: Made) -> None:
    """A machine that is busy now and then: half of the steps, and most sampled ones, take 10 ms longer."""
    made.process()
    backward = np.where(np.arange(1000) % 2 == 0, 0.02, 0.01)
    kept = np.r_[np.arange(0, 1000, 50), np.arange(25, 1000, 200)]
    made.log({"step_seconds": backward + 0.02})
    made.log(
        {
            "phase/backward_seconds": backward[kept],
            "phase/other_seconds": np.full(len(kept), 0.02),
            "phase/sampled_ratio": np.full(len(kept), len(kept) / 1000),
        },
        kept,
    )
    assert shares(made)["other"] == pytest.approx(20 / 35, abs=0.06)
    assert verdict_shares(made) == pytest.approx(shares(made))


def test_an_evaluation_between_steps_is_not_part_of_a_step(made: Made) -> None:
    made.process()
    trained(made)
    made.log({"phase/eval_seconds": [5.0, 5.0]}, [40, 80])
    phase_shares = shares(made)
    assert sum(phase_shares.values()) == pytest.approx(1.0)
    assert phase_shares.get("eval", 0.0) == pytest.approx(0.0, abs=1e-9)


def test_an_evaluation_after_a_sampled_step_is_counted_once(made: Made) -> None:
    made.process()
    sampled(made, 0.01, np.arange(0, 1000, 100), np.full(1000, 0.01))
    made.log({"phase/eval_seconds": 0.5, "gap/eval_seconds": 0.5}, np.arange(0, 1000, 200))
    phase_shares = shares(made)
    assert "eval" not in phase_shares
    assert phase_shares["backward"] == pytest.approx(0.5)
    assert verdict_shares(made) == pytest.approx(phase_shares)


def test_phases_with_other_names_come_after_the_known_ones(made: Made) -> None:
    made.process()
    trained(made)
    made.log({"phase/my stuff_seconds": np.full(100, 0.001)})
    assert list(shares(made)) == ["forward", "backward", "my stuff"]
    assert shares(made)["my stuff"] == pytest.approx(0.1)


def test_steps_that_are_not_timed_have_no_phases(made: Made) -> None:
    made.process()
    made.log({"loss": [1.0, 2.0], "phase/data_seconds": 0.1})
    assert shares(made) == {}


def test_time_of_stepscope_in_sampled_steps_is_not_a_phase(made: Made) -> None:
    """A step takes 1 ms, of which 0.2 ms are other time; a sampled one takes 0.6 ms more."""
    made.process()
    kept = np.arange(0, 1000, 10)
    taken = np.full(1000, 0.001)
    taken[kept] += 0.0006
    made.log({"step_seconds": taken})
    made.log(
        {
            "phase/forward_seconds": np.full(100, 0.0008),
            "phase/other_seconds": np.full(100, 0.0008),
            "phase/sampled_ratio": np.full(100, 0.1),
        },
        kept,
    )
    assert shares(made)["forward"] == pytest.approx(0.8, rel=0.06)
    assert shares(made)["other"] == pytest.approx(0.2, rel=0.25)
    assert verdict_shares(made) == pytest.approx(shares(made))


def test_a_few_steps_that_represent_hundreds_each_give_no_verdict(made: Made) -> None:
    made.process()
    kept = np.r_[np.arange(10), 300, 500]
    made.log({"step_seconds": np.full(600, 0.001)})
    made.log(
        {
            "phase/forward_seconds": np.full(12, 0.0002),
            "phase/other_seconds": np.full(12, 0.0008),
            "phase/sampled_ratio": np.r_[np.ones(10), 0.005, 0.005],
        },
        kept,
    )
    assert verdict_shares(made) == {}
    assert shares(made)["other"] == pytest.approx(0.8)
