"""Facts about a process at its start: command, versions, environment. Secrets are left out."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import procfs
from stepscope.config.sections import Agent, Alerts, Energy, Retention, Targets
from stepscope.journal.layout import clean
from stepscope.journal.private_settings import has_private
from stepscope.recorder.identity.notebook_kernel import is_kernel, notebook_command
from stepscope.schema.redact import redact_text, redact_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepscope.config.sections import Settings
    from stepscope.schema.identity import Identity
    from stepscope.schema.privacy import Privacy
    from stepscope.schema.run import Role

# Explicit names: an environment may hold credentials under any name.
ENVIRONMENT = {
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MKL_NUM_THREADS",
    "NCCL_DEBUG",
    "NCCL_IB_DISABLE",
    "NCCL_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "RANK",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "TORCH_LOGS",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
    "WORLD_SIZE",
}

GPU_LIST = "_VISIBLE_DEVICES"
"""The end of the variables with which every vendor selects the GPUs of a process."""

_LIBRARIES = ("torch", "numpy", "lightning", "transformers", "accelerate", "jax", "ray")


def opening_of(
    identity: Identity, settings: Settings, privacy: Privacy, role: Role, command: Sequence[str] | None
) -> dict[str, Any]:
    """The opening record of a journal: its run and process, and the settings that the agent needs."""
    described = facts(identity.world_size, privacy, command)
    described.update(_settings_for_agent(settings))
    if settings.logging.directory is not None:
        with contextlib.suppress(OSError):  # a relative path, and the working directory was deleted
            described["log_directory"] = str(Path(settings.logging.directory).expanduser().absolute())
    return {
        "run": clean(identity.name),
        "project": clean(identity.project),
        "host": privacy.name(identity.host),
        "role": role,
        "started_ns": identity.started_ns or time.time_ns(),
        "facts": described,
    }


def _settings_for_agent(settings: Settings) -> dict[str, Any]:
    """The settings of this run that differ from the defaults, for an agent that another run has started."""
    changed: dict[str, Any] = {}
    if settings.samplers:
        changed["samplers"] = {name: asdict(sampler) for name, sampler in settings.samplers.items()}
    # Settings that may be secret are in `private_settings`, because these are kept in the store.
    sections: dict[str, tuple[Any, Any]] = {
        "alerts": (replace(settings.alerts, channels={}, link=None), Alerts()),
        "targets": (settings.targets, Targets()),
        "energy": (replace(settings.energy, prices_file=None), Energy()),
        "retention": (settings.store.retention, Retention()),
    }
    changed.update({name: asdict(section) for name, (section, usual) in sections.items() if section != usual})
    if has_private(settings):
        changed["has_private_settings"] = True
    if settings.detectors:
        changed["detectors"] = settings.detectors
    if settings.agent.stall_after_s != Agent().stall_after_s:
        changed["stall_after_s"] = settings.agent.stall_after_s
    if not settings.agent.verdict:
        changed["shows_verdict"] = False
    return changed


def facts(
    world_size: int,
    privacy: Privacy,
    command: Sequence[str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """Facts about this process that are safe to record."""
    return {
        "mark": asdict(procfs.mark(os.getpid())),
        "command": [privacy.text(word) for word in redact_words(command or _command())],
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "cpus": os.cpu_count(),
        "world_size": world_size,
        "libraries": _versions(),
        "environment": {
            name: privacy.text(redact_text(value))
            for name, value in sorted(environment.items())
            if name in ENVIRONMENT or name.endswith(GPU_LIST)
        },
        "commit": _commit(),
    }


def _command() -> list[str]:
    """The command of the program; of its parent in a process that `multiprocessing` has started.

    For a notebook it is the notebook: the command of its kernel names a file that is gone when it ends.
    """
    if is_kernel():
        return notebook_command()
    if "--multiprocessing-fork" in sys.orig_argv:
        return [sys.executable, *getattr(sys, "argv", ())]  # multiprocessing passes the parent's on
    return sys.orig_argv


def _versions() -> dict[str, str]:
    """Versions of the libraries already loaded; nothing is imported for it."""
    versions = {}
    for name in _LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            versions[name] = version
    return versions


def _commit() -> str | None:
    """The commit checked out in the working directory, read without starting git."""
    try:
        folder = Path.cwd()
    except OSError:  # it was deleted
        return None
    for place in (folder, *folder.parents):
        try:
            head = (place / ".git/HEAD").read_text().strip()
            if not head.startswith("ref: "):
                return head
            return (place / ".git" / head[5:]).read_text().strip()
        except OSError:
            continue
    return None
