"""Whole steps are timed the same way by the timer written in C and by the one written in Python."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from stepscope.journal.packing import unpacked_rows
from stepscope.steps.step_timer import MAX_ROWS, TAKEOVER, PythonStepTimer, StepTimer, is_compiled
from tests.packaging.compiler import can_compile


class Optimizer:
    """Stands for an optimizer: it is only compared, and not kept alive."""


OPTIMIZER = Optimizer()


@pytest.fixture(params=["compiled", "in Python"])
def timer(request: pytest.FixtureRequest) -> Any:
    if request.param == "compiled":
        if not can_compile():
            pytest.skip("there is no compiler here, or no headers of Python")
        assert is_compiled, "`make setup` compiles it"
        return StepTimer()
    return PythonStepTimer()


class Passes:
    """Takes down how passes over data end."""

    def __init__(self) -> None:
        self.left: list[bool] = []

    def __call__(self, is_left: bool) -> None:
        self.left.append(is_left)


def taken(timer: Any, columns: int) -> list[tuple[Any, ...]]:
    return unpacked_rows(timer.take(columns), columns - 2)


def numbers(rows: list[tuple[Any, ...]]) -> list[int]:
    return [row[1] for row in rows]


def test_a_step_ends_when_an_optimizer_has_stepped(timer: Any) -> None:
    began = timer.began_ns
    timer.step = timer.first_step = 5
    timer.last_optimizer = OPTIMIZER
    for _ in range(2):
        timer.optimizer_stepped(OPTIMIZER, (), {})
    first, second = taken(timer, 3)
    assert numbers([first, second]) == [5, 6]
    assert first[2] == pytest.approx((first[0] - began) * 1e-9)
    assert second[2] == pytest.approx((second[0] - first[0]) * 1e-9)
    assert timer.steps_made == 2
    assert taken(timer, 3) == []


def test_what_is_logged_after_an_optimizer_step_belongs_to_the_step_it_has_ended(timer: Any) -> None:
    numbers_of_logs = []
    timer.last_optimizer = OPTIMIZER
    for _ in range(3):
        timer.optimizer_stepped(OPTIMIZER, (), {})
        numbers_of_logs.append(timer.step)
        timer.step += timer.stride
    assert numbers_of_logs == numbers(taken(timer, 3)) == [0, 1, 2]


def test_what_was_logged_before_the_first_optimizer_step_belongs_to_the_step_that_it_ends(
    timer: Any,
) -> None:
    timer.last_optimizer = OPTIMIZER
    assert timer.step == 0
    timer.step += timer.stride
    timer.optimizer_stepped(OPTIMIZER, (), {})
    assert (timer.step, timer.is_over) == (0, True)
    timer.optimizer_stepped(OPTIMIZER, (), {})
    assert numbers(taken(timer, 3)) == [0, 1]


def test_an_optimizer_takes_over_when_the_last_one_has_not_stepped_for_a_while(timer: Any) -> None:
    first, second = Optimizer(), Optimizer()
    timer.last_optimizer, timer.on_other = first, lambda _: 2
    for _ in range(3):
        timer.optimizer_stepped(first)
        timer.optimizer_stepped(second)
    assert numbers(taken(timer, 3)) == [0, 1, 2]
    for _ in range(TAKEOVER + 2):
        timer.optimizer_stepped(second)
    assert numbers(taken(timer, 3)) == [3, 4, 5, 6]
    timer.in_batches = True
    timer.optimizer_stepped(first)
    assert timer.is_made


def test_an_optimizer_takes_over_at_once_or_never_where_that_is_known(timer: Any) -> None:
    first, second = Optimizer(), Optimizer()
    timer.last_optimizer, timer.on_other = first, lambda _: 0
    for _ in range(TAKEOVER + 2):
        timer.optimizer_stepped(second)
    assert timer.steps_made == 0
    timer.on_other = lambda _: 1
    timer.optimizer_stepped(second)
    assert timer.last_optimizer is second
    assert timer.steps_made == 1


def test_an_exception_of_on_other_is_raised(timer: Any) -> None:
    timer.on_other = lambda _: 1 // 0
    with pytest.raises(ZeroDivisionError):
        timer.optimizer_stepped(object())
    with pytest.raises(ZeroDivisionError):
        timer.ends_step(object())


def test_a_step_that_is_logged_ends_once_with_the_number_it_was_logged_with(timer: Any) -> None:
    for step in (3, 3, 4):
        timer.step = step + 1
        timer.end_logged()
    assert numbers(taken(timer, 3)) == [3, 4]
    assert timer.step == 5


def test_a_deleted_optimizer_is_the_last_one_no_longer(timer: Any) -> None:
    timer.last_optimizer = optimizer = Optimizer()
    assert timer.last_optimizer is optimizer
    del optimizer
    assert timer.last_optimizer is None
    timer.on_other = lambda _: 1
    timer.optimizer_stepped(OPTIMIZER)
    assert timer.last_optimizer is OPTIMIZER


def test_of_several_optimizers_the_last_ends_a_step(timer: Any) -> None:
    timer.last_optimizer = last = Optimizer()
    timer.optimizer_stepped(object())
    assert timer.steps_made == 0
    timer.optimizer_stepped(last)
    assert len(taken(timer, 5)) == 1


def test_in_batches_a_step_ends_when_the_loop_is_done_with_the_batch(timer: Any) -> None:
    timer.in_batches = True
    timer.last_optimizer = OPTIMIZER
    finish = Passes()
    for batch in timer.batches_of(iter("abcd"), finish):
        assert timer.held == batch
        if batch in "bd":
            timer.optimizer_stepped(OPTIMIZER)
            assert timer.step == "bd".index(batch), "a value logged now belongs to this step"
    assert finish.left == [False]
    assert timer.most_batches == 2
    rows = taken(timer, 5)
    assert numbers(rows) == [0, 1]
    assert [row[4] for row in rows] == [2.0, 2.0]
    assert timer.step == 2
    assert timer.most_batches == 0


def test_every_batch_can_be_a_step(timer: Any) -> None:
    timer.in_batches = timer.every_batch = True
    assert list(timer.batches_of(iter(range(3)), Passes())) == [0, 1, 2]
    assert numbers(taken(timer, 4)) == [0, 1, 2]


def test_the_wait_for_data_is_part_of_the_step_that_waits(timer: Any) -> None:
    timer.in_batches = timer.every_batch = True
    for _ in timer.batches_of(iter(range(3)), Passes()):
        assert timer.waited_ns > 0
    for row in taken(timer, 4):
        assert 0 < row[3] < row[2]


@pytest.mark.slow
def test_leaving_a_pass_early_is_reported_to_finish(timer: Any) -> None:
    finish = Passes()
    for _ in timer.batches_of(iter(range(3)), finish):
        break
    gc.collect()
    assert finish.left == [True]


@pytest.mark.slow
def test_a_pass_dropped_in_a_reference_cycle_is_reported_to_finish(timer: Any) -> None:
    finish = Passes()
    circle: list[Any] = [timer.batches_of(iter(range(3)), finish)]
    circle.append(circle)
    next(circle[0])
    del circle
    gc.collect()
    assert finish.left == [True]


def test_what_a_loader_raises_reaches_the_loop_and_ends_the_pass(timer: Any) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("no more data")

    finish = Passes()
    batches = timer.batches_of(broken(), finish)
    assert next(batches) == 1
    with pytest.raises(ValueError, match="no more data"):
        next(batches)
    assert finish.left == [False]
    assert list(batches) == [], "as an iterator that is over"
    assert finish.left == [False]


def test_a_batch_is_let_go_before_the_next_is_fetched(timer: Any) -> None:
    class Batch:
        pass

    gone = []

    def loader() -> Iterator[Batch]:
        batch = Batch()
        known = weakref.ref(batch)
        yield batch
        del batch
        gone.append(known() is None)

    for each in timer.batches_of(loader(), Passes()):
        del each
    assert gone == [True]


def test_a_special_step_is_ended_by_the_callback(timer: Any) -> None:
    ended: list[int] = []
    timer.on_step = ended.append
    timer.make_step()
    timer.is_special = True
    timer.make_step()
    timer.is_special = False
    timer.make_step()
    assert len(ended) == 1
    assert len(taken(timer, 3)) == 2


def test_after_a_set_number_of_steps_the_callback_ends_one(timer: Any) -> None:
    ended: list[int] = []

    def end(at_ns: int) -> None:
        ended.append(at_ns)
        timer.left = 3

    timer.on_step, timer.left = end, 3
    for _ in range(9):
        timer.make_step()
    assert len(ended) == 3
    assert len(taken(timer, 3)) == 6


def test_the_callback_is_called_when_steps_are_due_to_be_written(timer: Any) -> None:
    written: list[list[int]] = []
    timer.on_due, timer.due_ns = lambda: written.append(numbers(taken(timer, 3))), 0
    timer.make_step()
    assert written == [[0]]
    timer.due_ns = 2**63 - 1
    for _ in range(MAX_ROWS + 1):
        timer.make_step()
    assert [len(some) for some in written] == [1, MAX_ROWS], "and before there is no more room"
    assert len(taken(timer, 3)) == 1


def test_a_timer_that_is_never_read_keeps_working(timer: Any) -> None:
    for _ in range(3 * MAX_ROWS):
        timer.make_step()
    assert 0 < len(taken(timer, 3)) <= MAX_ROWS


def test_batches_without_an_optimizer_are_asked_about(timer: Any) -> None:
    answers = iter([False, True, False])
    timer.in_batches, timer.on_batch = True, answers.__next__
    list(timer.batches_of(iter(range(3)), Passes()))
    (row,) = taken(timer, 5)
    assert row[4] == 2.0


def test_callbacks_are_called_around_fetching_a_batch(timer: Any) -> None:
    calls: list[str] = []
    timer.on_asked, timer.on_got = lambda: calls.append("asked"), lambda: calls.append("got")
    for _ in timer.batches_of(iter(range(2)), Passes()):
        calls.append("batch")
    assert calls == ["asked", "got", "batch", "asked", "got", "batch", "asked"]
    assert timer.waited_ns == 0


def test_who_listens_to_optimizers_decides_about_steps(timer: Any) -> None:
    heard: list[Any] = []
    timer.on_optimizer = heard.append
    timer.optimizer_stepped("sgd", (), {})
    assert heard == ["sgd"]
    assert taken(timer, 3) == []


def test_what_a_listener_raises_reaches_the_caller(timer: Any) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("strict")

    timer.on_step, timer.is_special = fail, True
    with pytest.raises(RuntimeError, match="strict"):
        timer.make_step()
    timer.in_batches, timer.on_step, timer.on_batch = True, None, fail
    with pytest.raises(RuntimeError, match="strict"):
        list(timer.batches_of(iter(range(3)), Passes()))


def test_a_number_beyond_all_counting_is_no_error(timer: Any) -> None:
    timer.step = 2**63
    assert timer.step >= 2**63 - 1
    timer.step = -(2**63) - 1
    assert timer.step <= -(2**63)


@pytest.mark.slow
def test_a_timer_that_knows_those_who_know_it_is_freed(timer: Any) -> None:
    class Owner:
        def __init__(self) -> None:
            self.timer = type(timer)()
            self.timer.on_step = self.end
            self.batches = self.timer.batches_of(iter([1]), self.end)

        def end(self, _: int) -> None:
            pass

    known = weakref.ref(Owner())
    gc.collect()
    assert known() is None
