"""Why GPUs cannot be watched: what happened, and the command that helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


@dataclass(frozen=True)
class Reason:
    """What keeps GPUs from being watched."""

    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found} {self.remedy}"


NVIDIA_PACKAGE_MISSING = Reason(
    "The package nvidia-ml-py is missing, so GPUs cannot be watched.",
    "pip install nvidia-ml-py",
)
NVIDIA_SHOWS_NONE = Reason(
    "The NVIDIA driver works and shows no GPU.",
    "In a container or job, ask for one: docker run --gpus all, or sbatch --gres=gpu:1.",
)
AMD_PACKAGE_MISSING = Reason(
    "There is an AMD GPU, but the package amdsmi is missing.",
    "pip install amdsmi (of the version of ROCm that is installed here)",
)
AMD_SHOWS_NONE = Reason(
    "The AMD driver works and shows no GPU.",
    "In a container, pass them in: docker run --device /dev/kfd --device /dev/dri.",
)

_OF_NVML = {
    "LIBRARY_NOT_FOUND": Reason(
        "No NVIDIA driver is installed here (libnvidia-ml.so.1 is missing).",
        "If there is a GPU: install its driver, or run the container with --gpus all.",
    ),
    "DRIVER_NOT_LOADED": Reason(
        "The NVIDIA driver is installed but not loaded.",
        "Load it with: sudo modprobe nvidia",
    ),
    "NO_PERMISSION": Reason(
        "This user may not ask the NVIDIA driver.",
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
    """What an error of NVML at its start means."""
    code = getattr(error, "value", None)
    for name, reason in _OF_NVML.items():
        if code == getattr(nvml, f"NVML_ERROR_{name}", None):
            return reason
    return Reason(f"The NVIDIA driver does not answer: {error}.", "See whether nvidia-smi works.")


def reason_of_amdsmi(error: Exception) -> Reason:
    """What an error of amdsmi means, at its import or its start."""
    return Reason(
        f"The AMD driver does not answer: {error}.",
        "See whether amd-smi works; load the driver with: sudo modprobe amdgpu",
    )


def reason_of_one(name: str, trouble: str) -> Reason:
    """What keeps one GPU from being watched while the others are."""
    return Reason(f"{name} cannot be watched: {trouble}.", "See why with: nvidia-smi; dmesg | grep -i nvrm")
