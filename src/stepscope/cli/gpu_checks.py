"""Checks of what comes from elsewhere: GPU driver, PyTorch, optional packages."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from stepscope.cli.checks import Check

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

TORCH_WITHIN_S = 120.0
NOT_FEATURES = frozenset({"all", "dev"})

_REQUIREMENT = re.compile(r"(?P<package>[A-Za-z0-9._-]+).*extra == ['\"](?P<extra>[^'\"]+)['\"]")
_ASK_TORCH = (
    "import torch; print(torch.version.cuda or torch.version.hip or '', torch.cuda.is_available(),"
    " torch.cuda.device_count(), sep='|')"
)


def name_gpus() -> list[str]:
    """The GPUs the driver shows; raises ImportError or NVMLError where it cannot be asked."""
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    try:
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return [str(nvml.nvmlDeviceGetName(handle)) for handle in handles]
    finally:
        nvml.nvmlShutdown()


def check_gpu(name_all: Callable[[], list[str]] = name_gpus) -> Check:
    """Whether GPUs can be watched, and if not, which of the several reasons it is."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return Check(
            "gpu",
            "note",
            "The package nvidia-ml-py is missing, so GPUs cannot be watched.",
            "pip install nvidia-ml-py",
        )
    try:
        names = name_all()
    except nvml.NVMLError as error:
        unknown = (f"The NVIDIA driver does not answer: {error}.", "See whether nvidia-smi works.")
        found, remedy = _reasons(nvml).get(error.value, unknown)
        return Check("gpu", "note", found, remedy)
    if not names:
        return Check(
            "gpu",
            "note",
            "The NVIDIA driver works and shows no GPU.",
            "In a container or job, ask for one: docker run --gpus all, or sbatch --gres=gpu:1.",
        )
    counted = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    return Check("gpu", "ok", ", ".join(counted))


def _reasons(nvml: ModuleType) -> dict[int, tuple[str, str]]:
    """What the errors of NVML mean, and what to do about each."""
    return {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
            "No NVIDIA driver is installed here (libnvidia-ml.so.1 is missing).",
            "If there is a GPU: install its driver, or run the container with --gpus all.",
        ),
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: (
            "The NVIDIA driver is installed but not loaded.",
            "Load it with: sudo modprobe nvidia",
        ),
        nvml.NVML_ERROR_NO_PERMISSION: (
            "This user may not ask the NVIDIA driver.",
            "See who may with: ls -l /dev/nvidia*",
        ),
        nvml.NVML_ERROR_GPU_NOT_FOUND: (
            "The NVIDIA driver finds no GPU it can use.",
            "See why with: nvidia-smi; dmesg | grep -i nvrm",
        ),
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "The NVIDIA driver was updated while loaded: its parts have different versions.",
            "Restart the machine, or the container.",
        ),
    }


def check_torch() -> Check:
    """Which PyTorch is installed, and whether it can use a GPU; asked in a process of its own."""
    version = _version("torch")
    if version is None:
        return Check("torch", "note", "PyTorch is not installed.", "pip install 'stepscope[torch]'")
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH],
            capture_output=True,
            text=True,
            check=True,
            timeout=TORCH_WITHIN_S,
        )
    except (OSError, subprocess.SubprocessError):
        return Check(
            "torch",
            "note",
            f"PyTorch {version} is installed but cannot be imported.",
            'See why with: python -c "import torch"',
        )
    return _torch_answer(version, answer.stdout)


def _torch_answer(version: str, answer: str) -> Check:
    toolkit, usable, count = answer.strip().splitlines()[-1].split("|")
    if usable == "True":
        return Check("torch", "ok", f"PyTorch {version} can use {count} GPU(s), built for {toolkit}")
    if not toolkit:
        return Check("torch", "ok", f"PyTorch {version}, built for the CPU only")
    return Check(
        "torch",
        "note",
        f"PyTorch {version} is built for {toolkit} but finds no GPU it can use.",
        "Compare with the gpu check above; CUDA_VISIBLE_DEVICES may hide them.",
    )


def check_extras() -> Check:
    """Which optional features are installed, and how to have the others."""
    packages: dict[str, list[str]] = {}
    for requirement in metadata.requires("stepscope") or ():
        match = _REQUIREMENT.match(requirement)
        if match and match["extra"] not in NOT_FEATURES:
            packages.setdefault(match["extra"], []).append(match["package"])
    missing = [extra for extra, needed in packages.items() if None in map(_version, needed)]
    present = ", ".join(sorted(packages.keys() - set(missing))) or "none"
    if not missing:
        return Check("extras", "ok", f"installed: {present}")
    return Check(
        "extras",
        "ok",
        f"installed: {present}; not installed: {', '.join(sorted(missing))}",
        f"To have one: pip install 'stepscope[{sorted(missing)[0]}]'",
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
