"""A schedule is split into phases, and each phase is judged by its effect on the loss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import stepscope
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore
from stepscope.views.schedule.schedule import Schedule, SchedulePhase, schedule_from, schedule_of
from tests.store.run_samples import BEGUN_NS, NS, RUN, process

NOTHING = "no measurable effect"


def noise(count: int, size: float = 0.05, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, size, count)


def cosine(count: int, high: float = 1e-3, low: float = 0.0) -> np.ndarray:
    """From `high` down; `low` would be the next value."""
    return low + (high - low) * (1 + np.cos(np.pi * np.arange(count) / count)) / 2


def line(count: int, begin: float, end: float) -> np.ndarray:
    """From `begin`; `end` would be the next value."""
    return np.linspace(begin, end, count, endpoint=False)


def falling(*stretches: tuple[int, float], begin: float = 5.0) -> np.ndarray:
    """A loss that falls linearly by the given amounts over the given numbers of steps."""
    return begin - np.cumsum(np.concatenate([np.full(count, by / count) for count, by in stretches]))


def judged(rates: np.ndarray, losses: np.ndarray | None = None) -> Schedule:
    """Returns the schedule for a rate and a loss logged with each step."""
    losses = np.zeros(len(rates)) if losses is None else losses
    return schedule_from((np.arange(len(rates)), rates), (np.arange(len(losses)), losses))


def parts(schedule: Schedule) -> list[tuple[str, int, int]]:
    return [(phase.label, phase.first_step, phase.last_step) for phase in schedule.phases]


WARM_UP = line(100, 0.0, 1e-3)
LEVELS = np.repeat([0.1, 0.01, 0.001], 300)

SCHEDULES: dict[str, tuple[np.ndarray, list[tuple[str, int, int]]]] = {
    "constant": (np.full(500, 3e-4), [("constant", 0, 499)]),
    "linear decay": (line(500, 1e-3, 0.0), [("linear decay", 0, 499)]),
    "exponential decay": (1e-2 * 0.99 ** np.arange(500), [("exponential decay", 0, 499)]),
    "a polynomial is not a known shape": (line(500, 1.0, 0.0) ** 2, [("decay", 0, 499)]),
    "warm-up and cosine": (
        np.r_[WARM_UP, cosine(900)],
        [("linear warm-up", 0, 100), ("cosine decay", 101, 999)],
    ),
    "cosine to a tenth": (
        np.r_[WARM_UP, cosine(900, 1e-3, 1e-4)],
        [("linear warm-up", 0, 100), ("cosine decay", 101, 999)],
    ),
    "warm-up and inverse square root": (
        np.r_[WARM_UP, 1e-3 * np.sqrt(100 / np.arange(100.0, 1000.0))],
        [("linear warm-up", 0, 100), ("decay", 101, 999)],
    ),
    "warm-up, constant, decay": (
        np.r_[WARM_UP, np.full(700, 1e-3), line(200, 1e-3 - 5e-6, 0.0)],
        [("linear warm-up", 0, 99), ("constant", 100, 799), ("linear decay", 800, 999)],
    ),
    "levels": (LEVELS, [("constant", 0, 299), ("constant", 300, 599), ("constant", 600, 899)]),
    "levels after a warm-up": (
        np.r_[line(50, 0.0, 0.1), np.repeat([0.1, 0.01], [450, 500])],
        [("linear warm-up", 0, 49), ("constant", 50, 499), ("constant", 500, 999)],
    ),
    "a level that is raised": (
        np.repeat([0.1, 0.2], 500),
        [("constant", 0, 499), ("constant", 500, 999)],
    ),
    "halved eight times": (
        np.repeat(0.1 * 0.5 ** np.arange(8), 100),
        [("constant", place, place + 99) for place in range(0, 800, 100)],
    ),
    "a cosine by epochs is one decay": (np.repeat(cosine(90), 20), [("cosine decay", 0, 1799)]),
    "and so it is by few of them": (np.repeat(cosine(10), 100), [("decay", 0, 999)]),
    "a sudden drop in a decay": (
        np.r_[1e-2 * 0.999 ** np.arange(500), 1e-3 * 0.999 ** np.arange(500)],
        [("exponential decay", 0, 499), ("exponential decay", 500, 999)],
    ),
    "warm restarts": (
        np.concatenate([cosine(count, 0.1, 1e-4) for count in (100, 200, 400)]),
        [("cosine decay 1", 0, 99), ("cosine decay 2", 100, 299), ("cosine decay 3", 300, 699)],
    ),
    "a restart with the very last reading": (
        np.r_[np.tile(cosine(200, 0.1), 2), 0.1],
        [("cosine decay 1", 0, 199), ("cosine decay 2", 200, 399), ("constant", 400, 400)],
    ),
    "up and down": (
        np.tile(np.r_[line(100, 1e-3, 1e-2), line(100, 1e-2, 1e-3)], 2),
        [
            ("linear warm-up 1", 0, 100),
            ("linear decay 1", 101, 200),
            ("linear rise 2", 201, 300),
            ("linear decay 2", 301, 399),
        ],
    ),
    "a warm-up anew": (
        np.r_[np.full(300, 1e-3), line(100, 1e-5, 1e-3), np.full(300, 1e-3)],
        [("constant", 0, 299), ("linear warm-up", 300, 399), ("constant", 400, 699)],
    ),
    "one odd reading": (np.r_[np.full(300, 0.1), 0.0, np.full(300, 0.1)], [("constant", 0, 600)]),
}


class TestThePhases:
    @pytest.mark.parametrize("name", SCHEDULES)
    def test_each_kind_of_schedule_is_split_at_its_borders(self, name: str) -> None:
        rates, expected = SCHEDULES[name]
        assert parts(judged(rates)) == expected

    @pytest.mark.parametrize("name", SCHEDULES)
    def test_rates_of_single_precision_are_split_alike(self, name: str) -> None:
        rates, expected = SCHEDULES[name]
        assert parts(judged(rates.astype(np.float32).astype(np.float64))) == expected

    def test_fluctuating_readings_are_constant(self) -> None:
        rates = np.r_[WARM_UP, np.full(900, 1e-3)] * (1 + noise(1000, 1e-3))
        (warm_up, level) = judged(rates).phases
        assert (warm_up.kind, level.kind) == ("warm-up", "constant")
        assert 97 <= level.first_step <= 101

    def test_many_readings_are_split_as_exactly_as_few(self) -> None:
        rates = np.r_[line(4_000, 0.0, 1e-3), cosine(96_000), np.repeat([1e-4, 1e-5], 50_000)]
        assert parts(judged(rates)) == [
            ("linear warm-up", 0, 4_000),
            ("cosine decay", 4_001, 99_999),
            ("constant", 100_000, 149_999),
            ("constant", 150_000, 199_999),
        ]

    def test_a_rarely_logged_rate_is_split_at_its_readings(self) -> None:
        steps = np.arange(0, 900, 50)
        schedule = schedule_from((steps, LEVELS[steps]), (np.arange(900), np.zeros(900)))
        assert parts(schedule) == [("constant", 0, 299), ("constant", 300, 599), ("constant", 600, 899)]

    def test_missing_steps_do_not_move_a_border_beyond_the_next_reading(self) -> None:
        kept = np.sort(np.random.default_rng(0).choice(900, 600, replace=False))
        schedule = schedule_from((kept, LEVELS[kept]), (kept, np.zeros(600)))
        begins = [int(kept[kept >= border][0]) for border in (300, 600)]
        assert [phase.first_step for phase in schedule.phases[1:]] == begins

    def test_steps_out_of_order_and_repeated_change_nothing(self) -> None:
        rates, losses = np.r_[WARM_UP, cosine(900)], falling((1000, 3.0)) + noise(1000)
        order = np.random.default_rng(0).permutation(1000)
        steps = np.r_[order, np.arange(1000)]
        doubled = schedule_from(
            (steps, np.r_[np.full(1000, 7.0), rates]), (steps, np.r_[np.full(1000, 99.0), losses])
        )
        assert doubled == judged(rates, losses)

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("constant", "constant"),
            ("warm-up and cosine", "linear warm-up, then cosine decay"),
            ("levels after a warm-up", "linear warm-up, then 2 levels"),
            ("levels", "3 levels"),
            ("warm restarts", "3 cycles"),
        ],
    )
    def test_the_schedule_has_a_name(self, name: str, words: str) -> None:
        assert judged(SCHEDULES[name][0]).name == words

    def test_one_cycle_has_a_long_rise_and_ends_below_its_start(self) -> None:
        rise, decay = cosine(300, 1e-2, 4e-4)[::-1], cosine(700, 1e-2, 4e-8)
        schedule = judged(np.r_[rise, decay])
        assert schedule.name == "one cycle"
        assert [phase.kind for phase in schedule.phases] == ["warm-up", "decay"]
        assert judged(np.r_[line(100, 4e-4, 1e-2), decay]).name == "linear warm-up, then cosine decay"

    def test_a_random_rate_has_no_phases(self) -> None:
        schedule = judged(np.random.default_rng(0).uniform(0.01, 1.0, 2000))
        assert schedule.phases == ()
        assert "turns" in schedule.why


class TestTheEffects:
    def test_each_phase_has_the_improvement_of_the_loss_in_it(self) -> None:
        losses = falling((300, 3.0), (300, 0.9), (300, 0.1)) + noise(900, 0.02)
        schedule = judged(LEVELS, losses)
        assert [phase.improvement for phase in schedule.phases] == pytest.approx([3.0, 0.9, 0.1], abs=0.03)
        ratios = [phase.improvement_ratio for phase in schedule.phases]
        assert ratios == pytest.approx([0.75, 0.225, 0.025], abs=0.01)
        assert [phase.per_thousand_steps for phase in schedule.phases] == pytest.approx(
            [10.0, 3.0, 1 / 3], abs=0.1
        )
        assert [phase.noise for phase in schedule.phases] == pytest.approx([0.02] * 3, rel=0.25)
        assert [phase.steps_ratio for phase in schedule.phases] == pytest.approx([1 / 3] * 3)
        assert schedule.phases[0].verdict == (
            "gave 75% of the improvement in 33% of the steps (confidence over 99.9%)"
        )
        assert schedule.improvement == pytest.approx(4.0, abs=0.03)

    def test_shares_of_all_phases_add_up_to_the_whole(self) -> None:
        losses = falling((100, 1.0), (500, 2.0), (300, -0.5)) + noise(900)
        ratios = [phase.improvement_ratio for phase in judged(LEVELS, losses).phases]
        assert sum(ratio for ratio in ratios if ratio is not None) == pytest.approx(1.0)

    def test_each_phase_begins_at_the_last_level_of_the_previous_one(self) -> None:
        first, second, third = judged(LEVELS, falling((900, 4.0)) + noise(900)).phases
        assert first.loss_before == pytest.approx(5.0, abs=0.1)
        assert (first.loss_after, second.loss_after) == (second.loss_before, third.loss_before)

    def test_the_immediate_effect_of_a_lower_rate_counts_for_it(self) -> None:
        losses = np.repeat([2.0, 1.0, 0.9], 300) + noise(900)
        first, second, third = judged(LEVELS, losses).phases
        assert NOTHING in first.verdict
        assert second.improvement == pytest.approx(1.0, abs=0.05)
        assert second.improvement_ratio == pytest.approx(1 / 1.1, abs=0.05)
        assert second.verdict.endswith("; no measurable effect in its second half")
        assert third.improvement == pytest.approx(0.1, abs=0.05)

    def test_a_phase_that_helps_to_its_end_has_no_note_on_its_second_half(self) -> None:
        for phase in judged(LEVELS, falling((900, 4.0)) + noise(900)).phases:
            assert "half" not in phase.verdict

    def test_a_constant_noisy_loss_has_no_measurable_effect(self) -> None:
        for seed in range(4):
            schedule = judged(LEVELS, 2.0 + noise(900, 0.3, seed))
            assert [phase.verdict for phase in schedule.phases] == [NOTHING] * 3
            assert {phase.improvement_ratio for phase in schedule.phases} == {None}

    def test_false_verdicts_are_as_rare_as_the_confidence_says(self) -> None:
        confidences = [
            phase.confidence or 0.0
            for seed in range(40)
            for losses in (noise(900, 0.3, seed), np.random.default_rng(seed).standard_t(2, 900))
            for phase in judged(LEVELS, losses).phases
        ]
        assert np.mean(np.array(confidences) >= 0.99) <= 0.02
        assert np.mean(np.array(confidences) >= 0.95) <= 0.05

    def test_a_smoothed_loss_rarely_gives_false_progress(self) -> None:
        certain = 0
        for seed in range(20):
            drawn = noise(950, 1.0, seed)
            smooth = np.convolve(drawn, 0.8 ** np.arange(50), "valid")[:900]
            certain += sum((phase.confidence or 0) >= 0.99 for phase in judged(LEVELS, smooth).phases)
        assert certain <= 3  # of 60; without regard to autocorrelation it would be a third

    def test_a_loss_without_noise_is_certain(self) -> None:
        losses = 2.0 * np.exp(-np.arange(900) / 300)
        for phase in judged(LEVELS, losses).phases:
            assert phase.confidence == pytest.approx(1.0)
            assert phase.improvement == pytest.approx(
                losses[phase.first_step] - losses[phase.last_step], rel=0.05
            )

    def test_a_constant_loss_has_no_measurable_effect(self) -> None:
        assert [phase.verdict for phase in judged(LEVELS, np.full(900, 0.7)).phases] == [NOTHING] * 3

    def test_spikes_do_not_change_levels(self) -> None:
        losses = falling((300, 3.0), (300, 0.9), (300, 0.3)) + noise(900, 0.02)
        losses[np.random.default_rng(0).choice(900, 27, replace=False)] += 100.0
        schedule = judged(LEVELS, losses)
        assert [phase.improvement for phase in schedule.phases] == pytest.approx([3.0, 0.9, 0.3], abs=0.1)

    def test_a_less_certain_change_is_called_probable(self) -> None:
        likely = [
            phase
            for seed in range(10)
            for phase in judged(LEVELS, np.repeat([2.0, 1.97, 1.94], 300) + noise(900, 0.05, seed)).phases
            if phase.confidence is not None and 0.95 <= phase.confidence < 0.99
        ]
        assert likely
        assert all("probably" in phase.verdict for phase in likely)

    def test_a_single_phase_shows_how_much_the_loss_fell(self) -> None:
        (phase,) = judged(np.full(900, 0.1), falling((900, 2.0)) + noise(900)).phases
        assert phase.verdict == f"lowered the loss by {phase.improvement:.3g} (confidence over 99.9%)"
        assert phase.improvement == pytest.approx(2.0, abs=0.1)
        assert phase.improvement_ratio == pytest.approx(1.0)


class TestALossThatRises:
    RATES = np.r_[line(300, 0.0, 3e-3), np.full(300, 3e-3), line(400, 3e-3 - 7.5e-6, 0.0)]

    def test_a_rise_at_the_highest_rate_is_reported_as_too_high(self) -> None:
        losses = falling((300, 2.0), (300, -1.0), (400, 2.0)) + noise(1000)
        warm_up, level, decay = judged(self.RATES, losses).phases
        assert level.verdict.startswith("the loss rose by")
        assert level.verdict.endswith("; it rose while the rate was at its highest: 0.003 may be too high")
        assert level.improvement == pytest.approx(-1.0, abs=0.1)
        assert level.improvement_ratio == pytest.approx(-1 / 3, abs=0.05)
        assert "too high" not in warm_up.verdict + decay.verdict

    def test_a_rise_at_a_lower_rate_is_not_reported_as_too_high(self) -> None:
        losses = falling((600, 2.0), (400, -1.0)) + noise(1000)
        verdicts = [phase.verdict for phase in judged(self.RATES, losses).phases]
        assert verdicts[2].startswith("the loss rose by")
        assert not any("too high" in verdict for verdict in verdicts)

    def test_a_rate_that_is_never_lower_is_not_called_too_high(self) -> None:
        (phase,) = judged(np.full(900, 0.1), falling((900, -2.0)) + noise(900)).phases
        assert phase.verdict.startswith("the loss rose by")
        assert "too high" not in phase.verdict
        assert phase.improvement_ratio is None

    def test_noise_at_the_highest_rate_is_not_reported_as_too_high(self) -> None:
        for seed in range(5):
            losses = falling((300, 2.0), (300, 0.0), (400, 1.0)) + noise(1000, 0.3, seed)
            assert not any("too high" in phase.verdict for phase in judged(self.RATES, losses).phases)


class TestLossesThatAreNone:
    def test_losses_that_are_not_finite_are_left_out_and_counted(self) -> None:
        losses = falling((300, 3.0), (300, 0.9), (300, 0.1)) + noise(900, 0.02)
        losses[[310, 350]] = np.nan
        losses[400] = np.inf
        first, second, _ = judged(LEVELS, losses).phases
        assert second.improvement == pytest.approx(0.9, abs=0.05)
        assert second.losses == 297
        assert second.verdict.endswith(
            "; 3 of 300 losses were not finite, the first at step 310 with a rate of 0.01"
        )
        assert "finite" not in first.verdict

    def test_a_diverged_run_is_judged_up_to_the_divergence(self) -> None:
        losses = falling((900, 3.0)) + noise(900)
        losses[300:] = np.nan
        first, second, third = judged(LEVELS, losses).phases
        assert first.improvement == pytest.approx(1.0, abs=0.1)
        assert second.verdict == (
            "has no finite loss; 300 of 300 losses were not finite, the first at step 300 with a rate of 0.01"
        )
        assert (third.improvement, third.confidence, third.noise) == (None, None, None)

    def test_few_losses_are_not_judged(self) -> None:
        steps = np.arange(0, 900, 60)
        schedule = schedule_from((np.arange(900), LEVELS), (steps, falling((15, 3.0))))
        assert [phase.verdict for phase in schedule.phases] == ["has 5 losses, too few to judge"] * 3

    def test_without_losses_only_the_rate_is_shown(self) -> None:
        nothing = (np.empty(0, np.int64), np.empty(0))
        schedule = schedule_from((np.arange(900), LEVELS), nothing, loss_key=None)
        assert schedule.name == "3 levels"
        assert schedule.improvement is None
        assert {phase.verdict for phase in schedule.phases} == {"has no finite loss"}
        assert "no loss was logged" in schedule.notes[0]

    def test_losses_far_from_any_rate_are_left_out(self) -> None:
        rates = (np.arange(100), np.full(100, 0.1))
        losses = np.r_[2.0 + noise(101), np.full(899, 50.0)]
        schedule = schedule_from(rates, (np.arange(1000), losses))
        assert schedule.phases[-1].last_step == 100
        assert schedule.phases[0].verdict == NOTHING
        assert schedule.notes == ("899 losses are left out: no rate was logged near them",)


class TestNothingToSay:
    LOSSES = (np.arange(100), falling((100, 1.0)))

    @pytest.mark.parametrize("rates", [[], [np.nan, np.nan], [np.inf]])
    def test_without_a_rate_the_report_says_what_to_log(self, rates: list[float]) -> None:
        schedule = schedule_from((np.arange(len(rates)), np.array(rates)), self.LOSSES)
        assert schedule.phases == ()
        assert "learning_rate=rate" in schedule.why

    def test_one_reading_is_not_a_schedule(self) -> None:
        schedule = schedule_from((np.array([5]), np.array([0.1])), self.LOSSES)
        assert schedule.phases == ()
        assert "for one step only" in schedule.why


some_floats = st.floats() | st.sampled_from([0.0, 1e-3, 0.1, float("nan"), float("inf"), 1e308, 5e-324])


@given(
    st.lists(st.tuples(st.integers(-5, 200), some_floats), max_size=60),
    st.lists(st.tuples(st.integers(-5, 200), some_floats), max_size=60),
)
def test_for_any_input_phases_are_contiguous_and_judged(
    rates: list[tuple[int, float]], losses: list[tuple[int, float]]
) -> None:
    schedule = schedule_from(_columns(rates), _columns(losses))
    assert bool(schedule.why) != bool(schedule.phases)
    for before, after in zip(schedule.phases, schedule.phases[1:], strict=False):
        assert before.last_step + 1 == after.first_step
    for phase in schedule.phases:
        assert phase.first_step <= phase.last_step
        assert phase.verdict
        assert phase.confidence is None or 0 <= phase.confidence <= 1


@pytest.mark.slow
@given(arrays.arrays(np.float64, st.integers(2, 300), elements=st.floats(0, 1)))
@example(np.array([0.5] * 13 + [2.2e-313, 0.5, 0.0, 0.5, 1.0]))
def test_for_any_rate_each_reading_is_in_one_phase(rates: np.ndarray) -> None:
    schedule = judged(rates)
    if schedule.phases:
        assert (schedule.phases[0].first_step, schedule.phases[-1].last_step) == (0, len(rates) - 1)
        assert sum(phase.steps_ratio for phase in schedule.phases) == pytest.approx(1.0)


def _columns(logged: list[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    steps = np.array([step for step, _ in logged], np.int64)
    return steps, np.array([value for _, value in logged], np.float64)


class RunBuilder:
    """Writes one run to a store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = SqliteStore(folder / "store.sqlite")

    def segment(self, name: str, start: int = 0, rank: int = 0) -> None:
        started_ns = BEGUN_NS + start * NS
        with self._store.transaction():
            self._store.put_process(process(segment=name, started_ns=started_ns, rank=rank))

    def log(
        self, steps: np.ndarray, segment: str = "a1", start: int = 0, rank: int = 0, **columns: np.ndarray
    ) -> None:
        """Writes values of keys, one step per second."""
        times_ns = BEGUN_NS + (start + np.arange(1, len(steps) + 1)) * NS
        with self._store.transaction():
            of = Source(RUN, segment, rank, "node1")
            self._store.append(of, list(columns), steps, times_ns, np.column_stack(list(columns.values())))

    def judged(self, rank: int | None = None) -> Schedule:
        store = stepscope.open_store(self._folder)
        try:
            return schedule_of(store.run(RUN), rank)
        finally:
            store.close()

    def close(self) -> None:
        self._store.close()


@pytest.fixture
def builder(folder: Path) -> Iterator[RunBuilder]:
    folder.mkdir()
    run_builder = RunBuilder(folder)
    yield run_builder
    run_builder.close()


LOSSES = falling((300, 3.0), (300, 0.9), (300, 0.3)) + noise(900, 0.02)


class TestARun:
    def test_only_the_key_learning_rate_counts(self, builder: RunBuilder) -> None:
        builder.segment("a1")
        other = np.random.default_rng(0).uniform(size=900)
        columns = {"learning_rate": LEVELS, "learning_rate/group_1": other, "loss": LOSSES}
        builder.log(np.arange(900), **columns)
        schedule = builder.judged()
        assert schedule == judged(LEVELS, LOSSES)
        assert schedule.loss_key == "loss"

    @pytest.mark.parametrize("key", ["train_loss", "train/loss", "training_loss"])
    def test_the_loss_may_have_another_name(self, builder: RunBuilder, key: str) -> None:
        builder.segment("a1")
        builder.log(np.arange(900), learning_rate=LEVELS, **{key: LOSSES})
        schedule = builder.judged()
        assert schedule.loss_key == key
        assert schedule.phases == judged(LEVELS, LOSSES).phases

    def test_repeated_steps_after_a_resume_count_last(self, builder: RunBuilder) -> None:
        builder.segment("a1")
        lost = np.r_[LOSSES[:600], np.full(100, 77.0)]
        builder.log(np.arange(700), learning_rate=np.r_[LEVELS[:600], np.full(100, 0.5)], loss=lost)
        builder.segment("a2", start=1000)
        again = np.arange(550, 900, 3)
        builder.log(again, "a2", start=1000, learning_rate=LEVELS[again], loss=LOSSES[again])
        schedule = builder.judged()
        assert parts(schedule) == [("constant", 0, 299), ("constant", 300, 600), ("constant", 601, 898)]
        assert [phase.improvement for phase in schedule.phases] == pytest.approx([3.0, 0.9, 0.3], abs=0.05)

    def test_ranks_are_not_mixed(self, builder: RunBuilder) -> None:
        for rank in (1, 2):
            builder.segment("a1", rank=rank)
        builder.log(np.arange(900), rank=1, learning_rate=LEVELS, loss=LOSSES)
        builder.log(np.arange(900), rank=2, learning_rate=LEVELS[::-1].copy(), loss=LOSSES + 10)
        assert builder.judged() == judged(LEVELS, LOSSES)
        assert builder.judged(rank=2) == judged(LEVELS[::-1], LOSSES + 10)

    def test_a_loss_that_another_rank_logs_is_found(self, builder: RunBuilder) -> None:
        for rank in (0, 3):
            builder.segment("a1", rank=rank)
        builder.log(np.arange(900), rank=0, learning_rate=LEVELS)
        builder.log(np.arange(900), rank=3, loss=LOSSES)
        assert builder.judged() == judged(LEVELS, LOSSES)

    def test_without_a_rate_the_report_says_what_to_log(self, builder: RunBuilder) -> None:
        builder.segment("a1")
        builder.log(np.arange(900), loss=LOSSES, lr=LEVELS)
        assert "no learning_rate was logged" in builder.judged().why

    def test_a_rate_without_a_loss_is_shown_alone(self, builder: RunBuilder) -> None:
        builder.segment("a1")
        builder.log(np.arange(900), learning_rate=LEVELS)
        schedule = builder.judged()
        assert (schedule.name, schedule.loss_key) == ("3 levels", None)

    def test_steps_that_restart_with_each_epoch_are_refused(self, builder: RunBuilder) -> None:
        builder.segment("a1")
        builder.log(np.tile(np.arange(100), 9), learning_rate=LEVELS, loss=LOSSES)
        schedule = builder.judged()
        assert schedule.phases == ()
        assert "step numbers restart" in schedule.why


def test_the_json_has_all_figures_of_all_phases() -> None:
    schedule = judged(LEVELS, LOSSES)
    plain = schedule.described()
    assert [phase["label"] for phase in plain["phases"]] == ["constant"] * 3
    fields = set(SchedulePhase.__dataclass_fields__) | {"label"}
    assert all(set(phase) == fields for phase in plain["phases"])
    assert plain["phases"][1]["improvement"] == schedule.phases[1].improvement
