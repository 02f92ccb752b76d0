"""The promises about the repository itself."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope
from stepscope.cli.main import COMMANDS
from tests.guards import metrics_page
from tests.guards.tree import PACKAGE, ROOMS, drawn, first_line, modules_of, sub_rooms_of

ROOT = PACKAGE.parents[1]
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_MODULES = 20
"""A room with more of them gets sub-rooms."""

BAGS = {"utils", "helpers", "common", "core", "misc"}

TESTS = ROOT / "tests"
TESTS_ACROSS_ROOMS = {
    "attack": "what an outsider could do to a store, in thousands of cases",
    "browser": "the web page in a real browser, before a real server",
    "examples": "the programs in examples/, and those that the page shows",
    "false_alarms": "what rules and detectors together say of healthy and failing trainings",
    "faults": "kills, full disks, forks and odd folders, which concern several rooms at once",
    "golden": "what users build on: interfaces, formats, commands",
    "gpu": "what needs a CUDA device",
    "guards": "promises about the repository itself",
    "packaging": "what people install, and how the page is built",
    "zoo": "the scores of `make zoo`, and its recordings diagnosed again",
    "strangers": "the checks of `make strangers`, which runs trainers from PyPI",
}
"""Folders of tests that are no room of the package, each with its subject."""


def test_public_names_are_one_sorted_list_and_each_can_be_had() -> None:
    assert stepscope.__all__ == sorted(stepscope.__all__, key=str.casefold)
    for name in stepscope.__all__:
        assert getattr(stepscope, name) is not None
    assert set(dir(stepscope)) == set(stepscope.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = stepscope.nonsense


def test_imports_point_one_way() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports"))]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import stepscope",
        (
            "import stepscope; m = stepscope.TrainingMonitor(run='a'); m.start_monitoring(); "
            "m.log_training_step(loss=1.0); m.stop_monitoring()"
        ),
    ],
    ids=["import", "a whole run"],
)
def test_the_training_process_loads_only_what_the_recorder_needs(code: str) -> None:
    heavy = "{'torch', 'numpy', 'pydantic', 'sqlite3', 'asyncio', 'yaml', 'zstandard', 'psutil', 'logging'}"
    script = f"import sys; {code}; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


def test_the_list_of_modules_is_that_of_the_package() -> None:
    advice = "write it again: python -m tests.guards.tree > docs/modules.md"
    assert (ROOT / "docs" / "modules.md").read_text() == drawn(), advice


def test_the_drawing_has_every_room_and_no_path_that_is_not_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    drawing = text.split("```")[1]
    rooms = {path.parent.relative_to(PACKAGE).parts[0] for path in MODULES if path.parent != PACKAGE}
    assert rooms == set(ROOMS)
    assert [room for room in ROOMS if f"{room}/" not in drawing] == []
    modules = {path.stem for path in MODULES if path.parent == PACKAGE} - {"__init__", "__main__", "version"}
    assert [name for name in sorted(modules) if f"`{name}`" not in text and f"{name}.py" not in text] == []
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py)?)`", text)
    places = (PACKAGE, ROOT)
    missing = [name for name in named if "/" in name and not any((place / name).exists() for place in places)]
    assert missing == []


def modules_where(breaks_rule: Callable[[Path], bool]) -> list[str]:
    return [str(path.relative_to(PACKAGE)) for path in MODULES if breaks_rule(path)]


def test_no_module_has_more_than_400_lines() -> None:
    assert modules_where(lambda path: len(path.read_text().splitlines()) > 400) == []


def test_no_module_is_deeper_than_a_sub_room() -> None:
    assert modules_where(lambda path: len(path.relative_to(PACKAGE).parts) > 3) == []


def test_no_module_is_named_like_a_bag() -> None:
    assert modules_where(lambda path: path.stem in BAGS) == []


def test_the_docstring_of_every_module_begins_with_a_sentence() -> None:
    assert modules_where(lambda path: not first_line(path).endswith(".")) == []


def test_tests_are_in_the_rooms_of_the_package_or_in_a_folder_with_a_reason() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")} - {Path()}
    strays = [folder for folder in folders if not (PACKAGE / folder / "__init__.py").exists()]
    assert {str(folder) for folder in strays} == set(TESTS_ACROSS_ROOMS)
    at_top = {path.name.removeprefix("test_") for path in TESTS.glob("test_*.py")}
    assert [name for name in at_top if not (PACKAGE / name).exists()] == []


def test_no_room_has_more_modules_than_one_sees_at_once() -> None:
    rooms = [folder for room in ROOMS for folder in (PACKAGE / room, *sub_rooms_of(PACKAGE / room))]
    large = {str(room.relative_to(PACKAGE)): len(modules_of(room)) for room in rooms}
    assert {room: count for room, count in large.items() if count > MAX_MODULES} == {}


def test_no_statement_numbers_its_placeholders() -> None:
    """From Python 3.14 on, SQLite's module refuses `?1` with values that come in a sequence."""
    numbered = [path.name for path in MODULES if re.search(r"[=( ]\?\d", path.read_text())]
    assert numbered == []


def test_the_page_on_metrics_has_what_the_samplers_declare() -> None:
    advice = "write it anew: python -m tests.guards.metrics_page > docs/metrics.md"
    assert (ROOT / "docs" / "metrics.md").read_text() == metrics_page.drawn(), advice


def test_every_folder_has_its_place_in_the_tree() -> None:
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} == set(ROOMS)


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == stepscope.__version__
    assert f'version = "{stepscope.__version__}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented_and_explains_itself(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from stepscope.cli.main import main

    assert f"\n## {command}\n" in (ROOT / "docs" / "commands.md").read_text()
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert COMMANDS[command] in re.sub(r"\s+", " ", capsys.readouterr().out)


def test_links_between_pages_lead_somewhere() -> None:
    links = [
        (page, target)
        for page in [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")]
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
    ]
    assert [(page.name, target) for page, target in links if not (page.parent / target).exists()] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((?:docs/)?([\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert {page.name for page in ROOT.glob("docs/*.md")} <= linked
