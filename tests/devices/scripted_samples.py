"""Readings of eight scripted GPUs, of which one idles, as a sampler gives them."""

from __future__ import annotations

import time

from stepscope.agent.sampling import SamplerReadings
from stepscope.devices.find_gpus import GpusFound
from stepscope.devices.scripted import scripted_host
from stepscope.samplers.gpu import GpuSampler
from stepscope.schema.sample import Reading

IDLE = 5


def find_eight(**_: bool) -> GpusFound:
    """Eight GPUs that train, but for one that does nothing."""
    return GpusFound(scripted_host(8, idle_gpus=[IDLE]), [])


EIGHT = list(GpuSampler(_find=find_eight).sample([]))


def taken(readings: list[Reading]) -> SamplerReadings:
    """A look that gave these readings."""
    return SamplerReadings("gpu", time.time_ns(), readings)
