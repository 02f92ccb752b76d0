"""Processes that stay after the training, and those that end or still work."""

import numpy as np
import pytest

from stepscope.analysis.diagnose import Diagnostician
from stepscope.schema.series import Source
from stepscope.store.sqlite import SqliteStore
from tests.detectors.simulated import BEGUN_S, HOST, RUN, SEGMENT, going_well, record

STEPS = 600
GPU = "GPU-1"


def diagnosed(tmp_path, minutes, *, cpu=0.01, gpu=0.0, total=STEPS, memory=4e9):
    """A run of `STEPS` steps whose process lived for some minutes after them."""
    run = going_well(1, STEPS)
    ended = BEGUN_S + float(run["step_seconds"].sum())
    store = SqliteStore(tmp_path / "store.sqlite")
    try:
        record(store, run, facts={"total_steps": total})
        times = np.arange(BEGUN_S + 5, ended + 60 * minutes, 1.0)
        is_after = times > ended
        readings = {
            ("tree/cpu_ratio", ""): np.where(is_after, cpu, 1.0),
            ("gpu/process_utilization_ratio", GPU): np.where(is_after, gpu, 0.9),
            ("gpu/process_memory_bytes", GPU): np.full(len(times), memory),
            ("gpu/utilization_ratio", GPU): np.where(is_after, gpu, 0.9),
        }
        with store.transaction():
            for (key, device), values in readings.items():
                place = Source(RUN, SEGMENT, 0, HOST, device, "seconds")
                numbers = np.zeros(len(times), np.int64)
                store.append(place, [key], numbers, (times * 1e9).astype(np.int64), values[:, None])
        return Diagnostician({}).diagnose(store, RUN)
    finally:
        store.close()
        (tmp_path / "store.sqlite").unlink()


@pytest.mark.parametrize("minutes", [6, 30])
def test_a_process_that_stays_after_all_steps_is_reported(tmp_path, minutes):
    [finding] = diagnosed(tmp_path, minutes).findings
    assert (finding.id, finding.severity) == ("run.idle_after_end", "warning")
    assert f"has held a GPU for {minutes}" in finding.headline or "5.9" in finding.headline
    assert finding.device == GPU


@pytest.mark.parametrize(
    ("minutes", "changes"),
    [
        (0, {}),
        (3, {}),
        (20, {"cpu": 0.9}),
        (20, {"gpu": 0.5, "cpu": 0.05}),
        (20, {"total": 10 * STEPS}),
        (20, {"total": None}),
        (20, {"memory": 0.0}),
    ],
)
def test_a_process_that_ends_soon_or_works_or_has_steps_left_is_fine(tmp_path, minutes, changes):
    assert diagnosed(tmp_path, minutes, **changes).findings == ()
