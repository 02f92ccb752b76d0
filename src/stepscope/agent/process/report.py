"""The agent's report in its store folder: process, version, why it cannot work; standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from stepscope.errors import StoreDamaged
from stepscope.filesystem import atomic_file, open_regular, read_regular
from stepscope.journal.layout import VERSION
from stepscope.version import __version__

REPORT_NAME = "agent.json"

_DISTRIBUTIONS = {"yaml": "pyyaml"}
"""Packages whose name on PyPI differs from their import name."""


@dataclass(frozen=True)
class AgentReport:
    """The state of an agent."""

    pid: int
    version: str
    """The version of stepscope."""
    journal_version: int
    """The newest journal version it can read."""
    python: str
    """The interpreter that runs it."""
    trouble: str = ""
    """Why it cannot work, and what to do about it; empty while it can."""


def own_report(trouble: str = "") -> AgentReport:
    """The report of this process as an agent."""
    return AgentReport(os.getpid(), __version__, VERSION, sys.executable, trouble)


def write_report(folder: Path, report: AgentReport) -> None:
    """Writes a report into a folder; does nothing where it cannot be written."""
    text = json.dumps(asdict(report))
    try:
        with atomic_file(folder / REPORT_NAME) as temporary:
            temporary.write_text(text)
    except OSError:
        # A folder that takes no new file, such as a read-only one, may still have the earlier file.
        with contextlib.suppress(OSError):
            descriptor = open_regular(folder / REPORT_NAME, os.O_WRONLY)
            os.pwrite(descriptor, text.encode(), 0)
            os.ftruncate(descriptor, len(text.encode()))
            os.close(descriptor)


def read_report(folder: Path) -> AgentReport | None:
    """Reads the report of a folder's newest agent, which may have ended; None where there is none."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        report = json.loads(read_regular(folder / REPORT_NAME))
        return AgentReport(
            **{field.name: report[field.name] for field in fields(AgentReport) if field.name in report}
        )
    return None


def explain_error(error: BaseException) -> str:
    """Explains in one line why an agent cannot work, and what to do about it."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        package = _DISTRIBUTIONS.get(package, package)
        return f"the package {package} is missing. Install it with: {sys.executable} -m pip install {package}"
    if isinstance(error, PermissionError) and error.filename is not None:
        return _explain_no_access(Path(error.filename))
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}. Fix it, or use another folder with STEPSCOPE_DIR."
    text = " ".join(str(error).split())
    if not type(error).__module__.startswith("stepscope."):
        return f"{type(error).__name__}: {text}. See agent.log in the store folder."
    if isinstance(error, StoreDamaged):
        return f"{text} Move that file away to begin a new store."
    return text


def _explain_no_access(path: Path) -> str:
    """Explains that this user may not write or delete a path, and who owns it."""
    user = os.geteuid()
    try:
        owner = path.stat().st_uid
    except OSError:
        owner = None
    if owner == user:
        return f"{path} cannot be written or deleted. Make the folder writable with: chmod u+w {path.parent}"
    owner_text = "another user" if owner is None else f"user {owner}"
    return (
        f"user {user} may not write or delete {path} of {owner_text}. Give user {user} write access to the "
        "whole store folder, or use a folder of its own with STEPSCOPE_DIR."
    )
