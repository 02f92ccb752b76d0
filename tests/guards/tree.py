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
    "insides",
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
ROOMS += ["profiling", "launcher", "cli"]


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
        lines += ["", f"  {room + '/':<20} {first_line(PACKAGE / room / '__init__.py')}"]
        for path in sorted((PACKAGE / room).glob("*.py")):
            if path.name != "__init__.py":
                lines.append(f"    {path.name:<18} {first_line(path)}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(drawn())
