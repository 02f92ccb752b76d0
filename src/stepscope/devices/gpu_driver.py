"""The interface of a vendor's GPU driver, and the list of vendors: each is one folder of `devices`.

A folder with a module `driver` is a vendor. Nothing outside the folder names it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from stepscope import devices, plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType

    from stepscope.devices.gpu import Gpu, GpuFacts
    from stepscope.schema.sample import Notice

Visible = tuple[str | None, ...]
"""The UUID of each GPU a process sees, in its own order; None where it is unknown which one it is."""

Entry = tuple[object, "GpuFacts | None"]
"""The meaning of a list entry: a key to detect repetitions, and the GPU, if known."""


@dataclass(frozen=True)
class DriverOptions:
    """How GPUs are opened."""

    performance_counters: bool = True
    """Whether to read performance counters, which another profiler of the host may need."""
    load: Callable[[str], ModuleType] = importlib.import_module
    """Imports the library of a vendor."""
    dev: Path = Path("/dev")
    now: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Reason:
    """Why GPUs cannot be read, and what to do."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem} {self.remedy}"


class GpusUnavailable(Exception):
    """The GPUs of a vendor cannot be read."""

    def __init__(self, reason: Reason, *, has_hardware: bool) -> None:
        """With hardware the reason is always reported; without, only where no vendor has a GPU."""
        super().__init__(str(reason))
        self.reason, self.has_hardware = reason, has_hardware


class GpuDriver(ABC):
    """The open driver of one vendor, and its GPUs. Each vendor's module `driver` defines one subclass."""

    vendor: ClassVar[str]
    """The name of the vendor in the facts of its GPUs."""
    order: ClassVar[int] = 100
    """In a host with GPUs of several vendors, those of the vendor with the lowest number come first."""
    gpus: list[Gpu]
    """The GPUs it has opened."""
    notices: Sequence[Notice] = ()
    """About GPUs that could not be opened."""

    @classmethod
    @abstractmethod
    def open(cls, options: DriverOptions) -> GpuDriver | None:
        """Opens all GPUs of the vendor; None where the host has none. Raises GpusUnavailable."""

    @classmethod
    def visible(cls, environment: Mapping[str, str], gpus: Sequence[GpuFacts]) -> Visible:
        """Which of the vendor's GPUs a process with that environment sees; without variables, all."""
        del environment
        return tuple(gpu.uuid for gpu in gpus)

    @abstractmethod
    def close(self) -> None:
        """Closes the GPUs and the driver."""


def vendors() -> dict[str, type[GpuDriver]]:
    """The driver class of each vendor by the name of its folder, in their order."""
    return _vendors(tuple(devices.__path__))


@functools.cache
def _vendors(path: tuple[str, ...]) -> dict[str, type[GpuDriver]]:
    folders = [module.name for module in pkgutil.iter_modules(path) if module.ispkg]
    drivers = {
        name: plugins.load("devices", f"{name}.driver", GpuDriver)  # type: ignore[type-abstract]
        for name in sorted(folders)
        if importlib.util.find_spec(f"{devices.__name__}.{name}.driver") is not None
    }
    return dict(sorted(drivers.items(), key=lambda item: item[1].order))


def visible_gpus(environment: Mapping[str, str], gpus: Sequence[GpuFacts]) -> Visible:
    """The GPUs a process with that environment sees as 0, 1 …: those of the first vendor that has any."""
    for driver in vendors().values():
        own = [gpu for gpu in gpus if gpu.vendor == driver.vendor]
        if own:
            return driver.visible(environment, own)
    return ()


def model_name(name: str) -> str:
    """The name of a GPU without that of its vendor."""
    for driver in vendors().values():
        name = name.removeprefix(f"{driver.vendor} ")
    return name


def gpu_by_uuid(entry: str, gpus: Iterable[GpuFacts]) -> Entry | None:
    """The only GPU whose UUID has this prefix; `GPU-` alone is not a prefix."""
    beginning = entry.casefold()
    matches = [gpu for gpu in gpus if len(entry) > 4 and gpu.uuid.casefold().startswith(beginning)]
    return (matches[0].uuid, matches[0]) if len(matches) == 1 else None


def gpu_at(entry: str, order: Sequence[GpuFacts | None]) -> Entry | None:
    """The GPU of an index in canonical form: HIP does not accept `01`."""
    if not entry.isdecimal() or entry != str(int(entry)) or int(entry) >= len(order):
        return None
    gpu = order[int(entry)]
    return (entry if gpu is None else gpu.uuid), gpu
