"""Which rank the others wait for, from recorded phases and waits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.reading import Run
from stepscope.store.sqlite import SqliteStore
from stepscope.views.steps.ranks import lateness, phase_medians
from tests.store.run_samples import RUN, append, process, source

STEPS = 20


def recorded_run(folder: Path, ranks: list[dict[str, object]]) -> Run:
    """A run whose ranks recorded these columns."""
    folder.mkdir()
    store = SqliteStore(folder / "store.sqlite")
    for rank, columns in enumerate(ranks):
        with store.transaction():
            store.put_process(process(rank=rank))
        for key, values in columns.items():
            repeated = np.broadcast_to(np.asarray(values, float), STEPS)
            steps = np.flatnonzero(~np.isnan(repeated))
            append(store, {key: repeated[steps]}, steps, of=source(rank=rank))
    store.close()
    return stepscope.open_store(folder).run(RUN)


def a_rank(**seconds: object) -> dict[str, object]:
    columns: dict[str, object] = {"step_seconds": 0.04}
    columns |= {f"phase/{name}_seconds": 0.01 for name in ("data", "forward", "backward", "optimizer")}
    keys = {"wait": "ranks/wait_seconds", "forward_wait": "ranks/forward_wait_seconds"}
    keys["backward_wait"] = "ranks/backward_wait_seconds"
    return columns | {keys.get(name, f"phase/{name}_seconds"): took for name, took in seconds.items()}


def test_the_wait_for_gradients_is_not_part_of_the_backward_pass(folder: Path) -> None:
    run = recorded_run(folder, [a_rank(backward=0.06, wait=0.041), a_rank(backward=0.06, wait=0.001)])
    medians = phase_medians(run)
    assert medians[0]["backward"] == pytest.approx(0.019)
    assert medians[1]["backward"] == pytest.approx(0.059)
    late = lateness(medians)
    assert late is not None
    assert (late.rank, late.phase) == (1, "backward")
    assert late.seconds == pytest.approx(late.phase_seconds) == pytest.approx(0.04)


def test_a_wait_in_the_forward_pass_is_subtracted_only_there(folder: Path) -> None:
    early = a_rank(forward=0.07, backward=0.05, forward_wait=0.06, backward_wait=0.01, wait=0.07)
    late = a_rank(forward=0.07, backward=0.05, forward_wait=0.01, backward_wait=0.01, wait=0.02)
    medians = phase_medians(recorded_run(folder, [early, early, late]))
    assert [medians[rank]["forward"] for rank in range(3)] == pytest.approx([0.01, 0.01, 0.06])
    assert [medians[rank]["backward"] for rank in range(3)] == pytest.approx([0.04, 0.04, 0.04])
    late_rank = lateness(medians)
    assert late_rank is not None
    assert (late_rank.rank, late_rank.phase) == (2, "forward")
    assert late_rank.seconds == pytest.approx(0.05)


def test_waits_are_subtracted_step_by_step(folder: Path) -> None:
    waits = np.where(np.arange(STEPS) % 2, 0.5, np.nan)
    forward = np.where(np.arange(STEPS) % 2, 0.52, 0.02)
    run = recorded_run(folder, [a_rank(forward=forward, forward_wait=waits, wait=waits)])
    assert phase_medians(run)[0]["forward"] == pytest.approx(0.02)


@pytest.mark.parametrize("length", [3, 9])
def test_steps_of_the_warm_up_are_left_out(folder: Path, length: int) -> None:
    is_warm_up = np.arange(STEPS) < length
    # Without its warm-up, the forward pass takes 10 ms in six of ten steps, and 30 ms in four.
    forward = np.where(is_warm_up, 9.0, np.where(np.arange(STEPS) % 5 < 2, 0.03, 0.01))
    rank = a_rank(forward=forward)
    rank["step_seconds"] = np.where(is_warm_up, 9.1, 0.04)
    assert phase_medians(recorded_run(folder, [rank]))[0]["forward"] == pytest.approx(0.01)


def test_no_rank_is_late_for_a_single_rank_or_without_waits(folder: Path, tmp_path: Path) -> None:
    assert lateness(phase_medians(recorded_run(folder, [a_rank(wait=0.1)]))) is None
    assert lateness(phase_medians(recorded_run(tmp_path / "apart", [a_rank(), a_rank()]))) is None
    assert phase_medians(recorded_run(tmp_path / "bare", [{"loss": 1.0}])) == {}
