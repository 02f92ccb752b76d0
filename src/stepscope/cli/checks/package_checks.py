"""Checks of PyTorch and of optional packages."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata

from stepscope.cli.checks.store_checks import Check

TORCH_TIMEOUT_S = 120.0
NOT_FEATURES = frozenset({"all", "dev"})

_REQUIREMENT = re.compile(r"(?P<package>[A-Za-z0-9._-]+).*extra == ['\"](?P<extra>[^'\"]+)['\"]")
_TORCH_SCRIPT = (
    "import torch; print(torch.version.cuda or torch.version.hip or '', torch.cuda.is_available(),"
    " torch.cuda.device_count(), sep='|')"
)


def check_torch() -> Check:
    """Which PyTorch is installed, and whether it can use a GPU; imported in a separate process."""
    version = _version("torch")
    if version is None:
        return Check("torch", "note", "PyTorch is not installed.", "pip install 'stepscope[torch]'")
    try:
        result = subprocess.run(
            [sys.executable, "-c", _TORCH_SCRIPT],
            capture_output=True,
            text=True,
            check=True,
            timeout=TORCH_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return Check(
            "torch",
            "note",
            f"PyTorch {version} is installed but cannot be imported.",
            'See why with: python -c "import torch"',
        )
    return _torch_check(version, result.stdout)


def _torch_check(version: str, output: str) -> Check:
    toolkit, usable, count = output.strip().splitlines()[-1].split("|")
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
    """Which optional features are installed, and how to install the others."""
    packages: dict[str, list[str]] = {}
    try:
        requirements = metadata.requires("stepscope") or ()
    except metadata.PackageNotFoundError:
        return Check("extras", "note", "stepscope runs from its sources; its extras are unknown")
    for requirement in requirements:
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
        f"To install one: pip install 'stepscope[{sorted(missing)[0]}]'",
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
