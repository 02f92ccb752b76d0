"""Checks of what can be read of this machine: every sampler is tried, and what it cannot read is named."""

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

BETWEEN_S = 0.25
"""Rates need two looks."""

MAX_NAMED = 6

_REASONS = {
    "cpu/frequency": "no clock is shown here, as in most virtual machines",
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
"""Why figures are missing that nobody misses; the longest beginning of a key that fits counts."""

_REMEDIES = {
    "pressure": "The kernel counts no pressure; boot it with psi=1.",
    "process/pss": "Another user's memory may not be looked at; run as the same user.",
}


def check_samplers(settings: Settings, sleep: Callable[[float], None] = time.sleep) -> Iterator[Check]:
    """One answer for each sampler: how many of its figures there are here, and why not the others."""
    for name in plugins.names("samplers"):
        wish = settings.sampler(name)
        if not wish.enabled:
            yield Check(name, "note", f"switched off by samplers.{name}.enabled")
            continue
        try:
            sampler = plugins.make("samplers", name, Sampler, wish.options)  # type: ignore[type-abstract]  # only its members
        except StepscopeError as error:
            yield Check(name, "note", str(error))
            continue
        yield _tried(name, sampler, sleep)


@dataclass(frozen=True)
class Reach:
    """What a sampler can read on this machine."""

    read: frozenset[str]
    """The metrics it gave."""
    notices: tuple[str, ...]
    """What it has to say."""
    gpus: tuple[str, ...]
    """The names of the GPUs it saw."""

    @property
    def counted_gpus(self) -> list[str]:
        """How many there are of each."""
        return [f"{self.gpus.count(name)} × {name}" for name in dict.fromkeys(self.gpus)]


def reach_of(sampler: Sampler, sleep: Callable[[float], None] = time.sleep) -> Reach:
    """Polls a sampler twice, for this process, and closes it."""
    this = Watched("doctor", "doctor", 0, os.getpid(), "rank")
    readings = list(sampler.sample([this]))
    sleep(BETWEEN_S)
    readings += sampler.sample([this])
    sampler.close()
    gpus = {one.device: one for one in readings if isinstance(one, DeviceFacts) and "vendor" in one.fields}
    return Reach(
        read=frozenset(key for one in readings if isinstance(one, Sample) for key in one.values),
        notices=tuple(dict.fromkeys(one.text for one in readings if isinstance(one, Notice))),
        gpus=tuple(str(one.fields["name"]) for one in gpus.values()),
    )


def _tried(name: str, sampler: Sampler, sleep: Callable[[float], None]) -> Check:
    reach = reach_of(sampler, sleep)
    read, notices = reach.read, reach.notices
    if not read:
        return Check(name, "note", " ".join(notices) or "nothing can be read here")
    missing = [metric.key for metric in sampler.metrics if metric.key not in read]
    found = ", ".join([*reach.counted_gpus, f"{len(read)} {'figure' if len(read) == 1 else 'figures'}"])
    if missing:
        found += f"; not here: {_named(missing)}"
    remedy = next((text for part, text in _REMEDIES.items() if any(part in key for key in missing)), "")
    return Check(name, "note" if notices else "ok", " ".join([found, *notices]), remedy)


def _named(missing: list[str]) -> str:
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
    fitting = [beginning for beginning in _REASONS if key.startswith(beginning)]
    return _REASONS[max(fitting, key=len)] if fitting else ""
