"""Finds the GPUs of all vendors, and explains why there are none or why one cannot be read."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.devices.amd.amd import AmdDriver
from stepscope.devices.nvidia.nvidia import NvidiaDriver, OpenOptions
from stepscope.schema.sample import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from stepscope.devices.gpu import Gpu

KFD = Path("/dev/kfd")
"""Exists when a compute driver for AMD GPUs is loaded."""


@dataclass(frozen=True)
class GpusFound:
    """The open GPUs of this host, and notices about those that could not be opened."""

    gpus: Sequence[Gpu]
    notices: Sequence[Notice]
    drivers: Sequence[NvidiaDriver | AmdDriver] = ()

    def close(self) -> None:
        """Closes the GPUs and their drivers."""
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
    """Opens every GPU of this host; explains why there is none only where none is found."""
    nvidia, nvidia_reason, notices = _find_nvidia(load, performance_counters=performance_counters)
    amd, amd_reason = _find_amd(load, kfd)
    drivers = [driver for driver in (nvidia, amd) if driver is not None]
    gpus = [gpu for driver in drivers for gpu in driver.gpus]
    if nvidia_reason is not None and not gpus:
        notices.append(Notice("gpu/nvidia", str(nvidia_reason)))
    if amd_reason is not None:
        notices.append(Notice("gpu/amd", str(amd_reason)))
    return GpusFound(gpus, notices, drivers)


def _find_nvidia(
    load: Callable[[str], ModuleType], *, performance_counters: bool
) -> tuple[NvidiaDriver | None, Reason | None, list[Notice]]:
    try:
        nvml = load("pynvml")
    except ImportError:
        return None, NVIDIA_PACKAGE_MISSING, []
    try:
        driver = NvidiaDriver(OpenOptions(nvml, performance_counters))
    except nvml.NVMLError as error:
        return None, reason_of_nvml(nvml, error), []
    notices = [
        Notice(f"gpu/nvidia/{name}", str(reason_of_gpu(name, trouble)))
        for name, trouble in driver.unavailable_gpus.items()
    ]
    return driver, None if driver.gpus or notices else NVIDIA_HAS_NO_GPU, notices


def _find_amd(load: Callable[[str], ModuleType], kfd: Path) -> tuple[AmdDriver | None, Reason | None]:
    """Opens AMD GPUs; without the driver's device there is nothing to open, and nothing to report."""
    if not kfd.exists():
        return None, None
    try:
        amdsmi = load("amdsmi")
    except ImportError:
        return None, AMD_PACKAGE_MISSING
    except (
        OSError,
        AttributeError,
        KeyError,
    ) as error:  # raised where ROCm is missing, or has another version
        return None, reason_of_amdsmi(error)
    try:
        driver = AmdDriver(amdsmi)
    except amdsmi.AmdSmiException as error:
        return None, reason_of_amdsmi(error)
    return driver, None if driver.gpus else AMD_HAS_NO_GPU


@dataclass(frozen=True)
class Reason:
    """Why GPUs cannot be read, and what to do."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem} {self.remedy}"


NVIDIA_PACKAGE_MISSING = Reason(
    "The package nvidia-ml-py is missing, so GPUs cannot be monitored.",
    "pip install nvidia-ml-py",
)
NVIDIA_HAS_NO_GPU = Reason(
    "The NVIDIA driver works but finds no GPU.",
    "In a container or job, request one: docker run --gpus all, or sbatch --gres=gpu:1.",
)
AMD_PACKAGE_MISSING = Reason(
    "There is an AMD GPU, but the package amdsmi is missing.",
    "pip install amdsmi (of the version of ROCm that is installed here)",
)
AMD_HAS_NO_GPU = Reason(
    "The AMD driver works but finds no GPU.",
    "In a container, add the devices: docker run --device /dev/kfd --device /dev/dri.",
)

_NVML_REASONS = {
    "LIBRARY_NOT_FOUND": Reason(
        "No NVIDIA driver is installed here (libnvidia-ml.so.1 is missing).",
        "If there is a GPU: install its driver, or run the container with --gpus all.",
    ),
    "DRIVER_NOT_LOADED": Reason(
        "The NVIDIA driver is installed but not loaded.",
        "Load it with: sudo modprobe nvidia",
    ),
    "NO_PERMISSION": Reason(
        "This user may not use the NVIDIA driver.",
        "See who may with: ls -l /dev/nvidia*",
    ),
    "GPU_NOT_FOUND": Reason(
        "The NVIDIA driver finds no GPU it can use.",
        "See why with: nvidia-smi; dmesg | grep -i nvrm",
    ),
    "LIB_RM_VERSION_MISMATCH": Reason(
        "The NVIDIA driver was updated while loaded: its parts have different versions.",
        "Restart the machine, or the container.",
    ),
}


def reason_of_nvml(nvml: ModuleType, error: Exception) -> Reason:
    """Explains an error of NVML at its initialisation."""
    code = getattr(error, "value", None)
    for name, reason in _NVML_REASONS.items():
        if code == getattr(nvml, f"NVML_ERROR_{name}", None):
            return reason
    return Reason(f"The NVIDIA driver does not answer: {error}.", "See whether nvidia-smi works.")


def reason_of_amdsmi(error: Exception) -> Reason:
    """Explains an error of amdsmi at its import or initialisation."""
    return Reason(
        f"The AMD driver does not answer: {error}.",
        "See whether amd-smi works; load the driver with: sudo modprobe amdgpu",
    )


def reason_of_gpu(name: str, trouble: str) -> Reason:
    """Explains why one GPU cannot be read while the others can."""
    return Reason(f"{name} cannot be monitored: {trouble}.", "See why with: nvidia-smi; dmesg | grep -i nvrm")
