"""Writes the skill file, which tells coding assistants when and how to use stepscope."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from stepscope.errors import StepscopeError
from stepscope.filesystem import atomic_file

if TYPE_CHECKING:
    from pathlib import Path

NAME = "stepscope"
"""The folder of the skill, which must have the name of the skill."""
FILE = "SKILL.md"


def skill_text() -> str:
    """Returns the text of the skill file."""
    return (resources.files("stepscope.mcp") / FILE).read_text(encoding="utf-8")


def write_skill(folder: Path) -> Path:
    """Writes the skill into a folder of skills and returns its path; keeps a file that somebody changed."""
    path, text = folder / NAME / FILE, skill_text()
    try:
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
            raise StepscopeError(
                f"{path} exists and is not the skill of this version. Move it away, then write it again."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, 0o644) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StepscopeError(
            f"The skill cannot be written to {path}: {error.strerror}. Name a folder that you may write to."
        ) from error
    return path
