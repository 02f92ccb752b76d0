"""The four figures at the top of a run's page: throughput, step time, GPU (or CPU) and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.views.overview.tile_gpu import gpu_tile
from stepscope.views.overview.tile_memory import memory_tile
from stepscope.views.overview.tile_steps import step_time_tile, throughput_tile

if TYPE_CHECKING:
    from stepscope.views.overview.tile import Tile
    from stepscope.views.run_context import RunContext


def tiles_of(scene: RunContext, remaining_s: float | None = None) -> tuple[Tile, ...]:
    """The tiles of a run; `remaining_s` is how long it will still go on, where that is known."""
    return throughput_tile(scene), step_time_tile(scene), gpu_tile(scene), memory_tile(scene, remaining_s)
