"""Draws the tree of the package from the first lines of its modules."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "stepscope"

# The order in which data travels; what is not listed comes before, by name.
ROOMS = [
    "config",
    "schema",
    "journal",
    "recorder",
    "steps",
    "model_stats",
    "devices",
    "samplers",
    "agent",
    "store",
    "exporters",
    "alerts",
    "channels",
    "analysis",
    "detectors",
    "views",
    "web",
]
ROOMS += ["profiling", "launcher", "facade", "cli"]


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text()))
    return text.splitlines()[0] if text else ""


def drawn() -> str:
    """The tree as ARCHITECTURE.md prints it."""
    lines = ["src/stepscope/"]
    for path in sorted(PACKAGE.glob("*.py")):
        lines.append(f"  {path.name:<20} {first_line(path)}")
    for room in ROOMS:
        lines += ["", *_drawn(PACKAGE / room, "  ")]
    return "\n".join(lines)


def modules_of(room: Path) -> list[Path]:
    """The modules of a room, without those of its sub-rooms."""
    return [path for path in sorted(room.glob("*.py")) if path.name != "__init__.py"]


def sub_rooms_of(room: Path) -> list[Path]:
    """The rooms within a room."""
    return [path.parent for path in sorted(room.glob("*/__init__.py"))]


def _drawn(room: Path, indent: str) -> list[str]:
    width = 22 - len(indent)
    lines = [f"{indent}{room.name + '/':<{width}} {first_line(room / '__init__.py')}"]
    inside = indent + "  "
    lines += [f"{inside}{path.name:<{width - 2}} {first_line(path)}" for path in modules_of(room)]
    for sub_room in sub_rooms_of(room):
        lines += _drawn(sub_room, inside)
    return lines


if __name__ == "__main__":
    print(drawn())
