"""Finds the last step of a run that is resumed, so that its steps continue from there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from stepscope.agent.process.attend import catch_up
from stepscope.errors import StoreError
from stepscope.schema.keys import LOSS_KEYS, STEP_SECONDS
from stepscope.store.open import has_store, open_reader

if TYPE_CHECKING:
    from pathlib import Path


def last_step(folder: Path, run_id: str) -> int | None:
    """The number of the last step that a run has recorded; None where it has none."""
    with contextlib.suppress(StoreError):  # the journals cannot be stored: use what is in the store
        catch_up(folder)
    if not has_store(folder):
        return None
    reader = open_reader(folder)
    try:
        last_steps = {info.key: info.last_step for info in reader.keys(run_id) if info.last_step is not None}
    finally:
        reader.close()
    logged_each_step = [last_steps[key] for key in (STEP_SECONDS, *LOSS_KEYS) if key in last_steps]
    return max(logged_each_step or last_steps.values(), default=None)
