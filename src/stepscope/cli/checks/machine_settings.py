"""Writes a settings file that fits this machine, with the reason for each value."""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stepscope import filesystem, plugins
from stepscope.cli.checks.machine_checks import reach_of
from stepscope.cli.checks.store_checks import check_agent, nearest_existing
from stepscope.config.sections import MIB, Settings
from stepscope.samplers.base import Sampler
from stepscope.views.formatting import size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RETENTION_SHARE = 0.1
"""Share of the free disk space to use for runs."""

WIDTH = 96

MakeSampler = Callable[[str], Sampler]


def fitting_settings(
    folder: Path,
    mounts: Path = filesystem.MOUNTS,
    make_sampler: MakeSampler = lambda name: plugins.make("samplers", name, Sampler, {}),  # type: ignore[type-abstract]  # only its members
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """The text of a settings file for runs that are recorded into a folder on this machine."""
    sections = [
        *_of_store(folder),
        *_of_recorder(folder, mounts),
        *_of_agent(folder),
        *_of_samplers(make_sampler, sleep),
    ]
    head = "# Settings that fit this machine, written by: stepscope doctor --write-settings\n"
    head += "# Every other setting has its default. All of them are explained by: stepscope config init\n"
    return "\n".join([head, *sections])


def _of_store(folder: Path) -> Iterator[str]:
    place = nearest_existing(folder)
    free = shutil.disk_usage(place).free
    limit = max(int(free * RETENTION_SHARE) // MIB, 1) * MIB
    why = (
        f"{place} has {size(free)} free. A run that has ended is deleted, the oldest first, while the store "
        f"takes more than a tenth of that, {size(limit)}. Remove this to keep all runs."
    )
    yield f"store:\n  retention:\n{_comment(why, 4)}    max_bytes: {limit}\n"


def _of_recorder(folder: Path, mounts: Path) -> Iterator[str]:
    kind = filesystem.kind_of(folder, mounts)
    if filesystem.keeps_reserved_space(kind):
        why = (
            f"The store folder is on {kind or 'a local file system'}, which keeps the space of mapped files."
        )
        yield f"recorder:\n{_comment(why)}  mapping: auto\n"
        return
    where = "over the network" if filesystem.is_network(kind) else "on a file system that copies on write"
    why = (
        f"The store folder is on {kind}, {where}: a mapped file could fail when the disk is full. Journals "
        "are written with write()."
    )
    yield f"recorder:\n{_comment(why)}  mapping: never\n"


def _of_agent(folder: Path) -> Iterator[str]:
    if "no process can be started" in check_agent(folder, Settings()).found:
        why = "No process can be started here, so the agent is a thread of the training process."
        yield f"agent:\n{_comment(why)}  mode: thread\n"


def _of_samplers(make_sampler: MakeSampler, sleep: Callable[[float], None]) -> Iterator[str]:
    lines = []
    for name in plugins.names("samplers"):
        reach = reach_of(make_sampler(name), sleep)
        if not reach.read:
            why = " ".join(reach.notices) or "Nothing of it can be read on this machine."
            lines.append(f"  {name}:\n{_comment(f'{why} Remove this entry when that changes.', 4)}")
            lines.append("    enabled: false\n")
        elif reach.gpus:
            gpus = ", ".join(reach.counted_gpus)
            lines.append(f"  {name}:\n{_comment(f'Found here: {gpus}.', 4)}")
            lines.append("    enabled: true\n")
    if lines:
        yield "samplers:\n" + "".join(lines)


def _comment(text: str, indent: int = 2) -> str:
    mark = " " * indent + "# "
    plain = " ".join(text.split())
    lines = textwrap.wrap(plain, WIDTH - len(mark), break_long_words=False, break_on_hyphens=False)
    return "".join(f"{mark}{line}\n" for line in lines)
