"""Tells the workers of a data loader from other children of a process, and names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepscope.devices.process.processes import ProcessKey

MAX_SLOTS = 64
"""Workers beyond it have no name of their own, so that the number of series stays bounded."""

TORCH_NAME = "pt_data_worker"
"""The name PyTorch gives to the first thread of a worker."""

_AGENT = "stepscope.agent.process.attend"
_SPAWNED = "multiprocessing.spawn"
_SERVER = "multiprocessing.forkserver"


class Kin(NamedTuple):
    """What is to be known of a process to say what it is to the one it works for."""

    name: str
    parent_name: str
    command: str
    parent_command: str
    is_child: bool
    """Of the process it works for, and no child of its children."""


def is_agent(command: str) -> bool:
    """Whether a process is stepscope's own, which a training may have started."""
    return _AGENT in command


def is_loader(kin: Kin) -> bool:
    """Whether a process is a worker of a data loader, or looks like one.

    PyTorch names its workers. Those of older versions and of other loaders are children made by
    `multiprocessing`: forked, so that they have the command of their parent; started anew with a command that
    says so; or forked by a server that was started anew.
    """
    if kin.parent_name == TORCH_NAME:  # what a worker starts has its name at first
        return False
    if kin.name == TORCH_NAME:
        return True
    if _SERVER in kin.command:
        return _SERVER in kin.parent_command
    return kin.is_child and (_SPAWNED in kin.command or (kin.command == kin.parent_command != ""))


class LoaderSlots:
    """Gives each worker of one process a name, and that of one which has ended to the next."""

    def __init__(self) -> None:
        self._taken: dict[ProcessKey, int] = {}

    def names(self, workers: Iterable[ProcessKey]) -> dict[ProcessKey, str]:
        """The names of the workers that are alive, new ones in the order of their start."""
        living = sorted(workers, key=lambda key: (key.start_ticks, key.pid))
        self._taken = {key: self._taken[key] for key in living if key in self._taken}
        free = sorted(set(range(MAX_SLOTS)) - set(self._taken.values()), reverse=True)
        for key in living:
            if key not in self._taken and free:
                self._taken[key] = free.pop()
        return {key: f"loader-{slot}" for key, slot in self._taken.items()}
