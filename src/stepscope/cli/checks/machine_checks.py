"""Checks which figures each sampler can read on this machine."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope import plugins
from stepscope.cli.checks.store_checks import Check
from stepscope.errors import StepscopeError
from stepscope.samplers.base import Sampler
from stepscope.schema.sample import DeviceFacts, Notice, Sample, Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepscope.config.sections import Settings

POLL_INTERVAL_S = 0.25
"""Rates need two samples."""

MAX_NAMED = 6

_REASONS = {
    "cpu/frequency": "the clock is not visible, as in most virtual machines",
    "cpu/cgroup_limit": "no limit is set",
    "cpu/cgroup": "no limit is set",
    "memory/cgroup_limit": "no limit is set",
    "memory/cgroup": "no limit is set",
    "disk/wait": "nothing was read or written meanwhile",
    "disk/read_wait": "nothing was read meanwhile",
    "disk/write_wait": "nothing was written meanwhile",
    "memory/swap": "there is no swap",
    "network/link_failures": "there is no InfiniBand",
}
"""Harmless reasons why figures are missing; the longest prefix of a key applies."""

_REMEDIES = {
    "pressure": "The kernel does not measure pressure; boot it with psi=1.",
    "process/pss": "The memory of another user's process is not readable; run as the same user.",
}


def check_samplers(settings: Settings, sleep: Callable[[float], None] = time.sleep) -> Iterator[Check]:
    """One check for each sampler: how many of its figures can be read, and why not the others."""
    for name in plugins.names("samplers"):
        sampler_settings = settings.sampler(name)
        if not sampler_settings.enabled:
            yield Check(name, "note", f"disabled by samplers.{name}.enabled")
            continue
        try:
            sampler = plugins.make("samplers", name, Sampler, sampler_settings.options)  # type: ignore[type-abstract]  # only its members
        except StepscopeError as error:
            yield Check(name, "note", str(error))
            continue
        yield _check_sampler(name, sampler, sleep)


@dataclass(frozen=True)
class SamplerReach:
    """What a sampler can read on this machine."""

    read: frozenset[str]
    """The metrics it returned."""
    notices: tuple[str, ...]
    """The notices it returned."""
    gpus: tuple[str, ...]
    """The names of the GPUs it found."""

    @property
    def counted_gpus(self) -> list[str]:
        """The number of GPUs of each name."""
        return [f"{self.gpus.count(name)} × {name}" for name in dict.fromkeys(self.gpus)]


def reach_of(sampler: Sampler, sleep: Callable[[float], None] = time.sleep) -> SamplerReach:
    """Polls a sampler twice, for this process, and closes it."""
    this_process = Watched("doctor", "doctor", 0, os.getpid(), "rank")
    readings = list(sampler.sample([this_process]))
    sleep(POLL_INTERVAL_S)
    readings += sampler.sample([this_process])
    sampler.close()
    samples = [reading for reading in readings if isinstance(reading, Sample)]
    notices = [reading.text for reading in readings if isinstance(reading, Notice)]
    devices = [reading for reading in readings if isinstance(reading, DeviceFacts)]
    gpus = {facts.device: str(facts.fields["name"]) for facts in devices if "vendor" in facts.fields}
    return SamplerReach(
        read=frozenset(key for sample in samples for key in sample.values),
        notices=tuple(dict.fromkeys(notices)),
        gpus=tuple(gpus.values()),
    )


def _check_sampler(name: str, sampler: Sampler, sleep: Callable[[float], None]) -> Check:
    reach = reach_of(sampler, sleep)
    read, notices = reach.read, reach.notices
    if not read:
        return Check(name, "note", " ".join(notices) or "nothing can be read on this machine")
    missing = [metric.key for metric in sampler.metrics if metric.key not in read]
    text = ", ".join([*reach.counted_gpus, f"{len(read)} {'figure' if len(read) == 1 else 'figures'}"])
    if missing:
        text += f"; missing: {_missing_text(missing)}"
    remedy = next((advice for part, advice in _REMEDIES.items() if any(part in key for key in missing)), "")
    return Check(name, "note" if notices else "ok", " ".join([text, *notices]), remedy)


def _missing_text(missing: list[str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for key in missing:
        by_reason.setdefault(_reason(key), []).append(key.partition("/")[2])
    parts = []
    for reason, keys in by_reason.items():
        some = ", ".join(keys[:MAX_NAMED]) + (
            f" and {len(keys) - MAX_NAMED} more" if keys[MAX_NAMED:] else ""
        )
        parts.append(f"{some} ({reason})" if reason else some)
    return "; ".join(parts)


def _reason(key: str) -> str:
    prefixes = [prefix for prefix in _REASONS if key.startswith(prefix)]
    return _REASONS[max(prefixes, key=len)] if prefixes else ""
