"""A module with a single user belongs into it, unless there is a reason to keep them apart."""

from __future__ import annotations

import ast
from collections import defaultdict
from fnmatch import fnmatchcase
from pathlib import Path

from tests.guards.tree import PACKAGE

MAX_LINES = 300
"""Two modules that are longer together may stay apart without a reason."""

REASONS = {
    "integrations.lightning.profiler": "one file for each callback; the package loads each by its name",
    "integrations.transformers.callback": "needs transformers; its package says how to install it",
    "mcp.change_tools": "what may change a store is in one file, apart from what only reads",
    "mirrors.*_writer": "each loads the library of its program, which only its own process may do",
    "profiling.profiled_program": "runs in another process, as `python -m`, and must not import its user",
    "steps.evidence.*": "one file for each probe: `sampled_probes` reads them all, and some are longer",
    "views.overview.*": "one file for each part of the page: `overview` puts them together",
    "views.steps.ranks": "says which rank is late and why, without the map that shows it",
    "web.server.server_lock": "a lock between processes, which changes with the files of a store",
}
"""Modules that stay apart from their only user, and why."""


def short(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imported_by(path: Path) -> set[str]:
    """The names a module imports from the package, without its own prefix."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.removeprefix("stepscope.") for name in names}


def mergeable(paths: list[Path]) -> set[str]:
    """Modules whose only user is in the same room, where both together are short."""
    users: defaultdict[str, set[Path]] = defaultdict(set)
    modules = {short(path): path for path in paths}
    for path in paths:
        for name in imported_by(path) & modules.keys() - {short(path)}:
            users[name].add(path)
    lines = {path: path.read_text().count("\n") for path in paths}
    return {
        name
        for name, (user, *others) in users.items()
        if not others
        and user.parent == modules[name].parent
        and lines[user] + lines[modules[name]] <= MAX_LINES
    }


def test_a_short_module_with_a_single_user_has_a_reason_to_stay_apart_from_it() -> None:
    apart = mergeable(sorted(PACKAGE.rglob("*.py")))
    without_reason = {name for name in apart if not any(fnmatchcase(name, reason) for reason in REASONS)}
    assert without_reason == set(), "merge each into its user, or write down why not"
    outdated = {reason for reason in REASONS if not any(fnmatchcase(name, reason) for name in apart)}
    assert outdated == set(), "these modules are merged or have other users; delete their reasons"


def test_a_module_with_one_short_user_is_noticed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tests.guards.test_single_users.PACKAGE", tmp_path)
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "part.py").write_text("FACT = 1\n" * 100)
    (tmp_path / "room" / "shared.py").write_text("FACT = 1\n")
    user, other = tmp_path / "room" / "whole.py", tmp_path / "room" / "other.py"
    user.write_text("from stepscope.room import part\nfrom stepscope.room.shared import FACT\n")
    other.write_text("def late() -> None:\n    from stepscope.room.shared import FACT\n")
    assert mergeable(sorted(tmp_path.rglob("*.py"))) == {"room.part"}
    user.write_text(user.read_text() * 101)
    assert mergeable(sorted(tmp_path.rglob("*.py"))) == set()
