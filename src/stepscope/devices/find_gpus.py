"""Finds the GPUs of all makers, and says plainly why there are none or why one cannot be watched."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.devices import gpu_reasons
from stepscope.devices.amd.amd import AmdDriver
from stepscope.devices.nvidia.nvidia import NvidiaDriver, Opening
from stepscope.schema.sample import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from stepscope.devices.gpu import Gpu
    from stepscope.devices.gpu_reasons import Reason

KFD = Path("/dev/kfd")
"""There when a driver for computing on AMD GPUs is loaded."""


@dataclass(frozen=True)
class GpusFound:
    """The GPUs of this host, opened, and what a person should know about those that are not there."""

    gpus: Sequence[Gpu]
    notices: Sequence[Notice]
    drivers: Sequence[NvidiaDriver | AmdDriver] = ()

    def close(self) -> None:
        """Closes the GPUs and lets go of their drivers."""
        for gpu in self.gpus:
            gpu.close()
        for driver in self.drivers:
            driver.close()


def find_gpus(
    *,
    performance_counters: bool = True,
    load: Callable[[str], ModuleType] = importlib.import_module,
    kfd: Path = KFD,
) -> GpusFound:
    """Opens every GPU of this host; reasons for having none are told only where none is found."""
    nvidia, why_no_nvidia, notices = _find_nvidia(load, performance_counters=performance_counters)
    amd, why_no_amd = _find_amd(load, kfd)
    drivers = [driver for driver in (nvidia, amd) if driver is not None]
    gpus = [gpu for driver in drivers for gpu in driver.gpus]
    if why_no_nvidia is not None and not gpus:
        notices.append(Notice("gpu/nvidia", str(why_no_nvidia)))
    if why_no_amd is not None:
        notices.append(Notice("gpu/amd", str(why_no_amd)))
    return GpusFound(gpus, notices, drivers)


def _find_nvidia(
    load: Callable[[str], ModuleType], *, performance_counters: bool
) -> tuple[NvidiaDriver | None, Reason | None, list[Notice]]:
    try:
        nvml = load("pynvml")
    except ImportError:
        return None, gpu_reasons.NVIDIA_PACKAGE_MISSING, []
    try:
        driver = NvidiaDriver(Opening(nvml, performance_counters))
    except nvml.NVMLError as error:
        return None, gpu_reasons.reason_of_nvml(nvml, error), []
    notices = [
        Notice(f"gpu/nvidia/{name}", str(gpu_reasons.reason_of_one(name, trouble)))
        for name, trouble in driver.closed_gpus.items()
    ]
    return driver, None if driver.gpus or notices else gpu_reasons.NVIDIA_SHOWS_NONE, notices


def _find_amd(load: Callable[[str], ModuleType], kfd: Path) -> tuple[AmdDriver | None, Reason | None]:
    """Without the driver's device there is nothing to ask, and nothing worth saying."""
    if not kfd.exists():
        return None, None
    try:
        amdsmi = load("amdsmi")
    except ImportError:
        return None, gpu_reasons.AMD_PACKAGE_MISSING
    except (
        OSError,
        AttributeError,
        KeyError,
    ) as error:  # what it raises where ROCm is missing, or of another version
        return None, gpu_reasons.reason_of_amdsmi(error)
    try:
        driver = AmdDriver(amdsmi)
    except amdsmi.AmdSmiException as error:
        return None, gpu_reasons.reason_of_amdsmi(error)
    return driver, None if driver.gpus else gpu_reasons.AMD_SHOWS_NONE
