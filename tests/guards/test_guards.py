"""The promises about the repository itself."""

from __future__ import annotations

import re
import subprocess
import sys
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
    assert [room for room in ROOMS if f"{room}/" not in drawing] == []
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py)?)`", text)
    places = (PACKAGE, ROOT)
    missing = [name for name in named if "/" in name and not any((place / name).exists() for place in places)]
    assert missing == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_is_short_has_a_first_line_and_a_name_that_says_something(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
    assert len(path.relative_to(PACKAGE).parts) <= 3
    assert path.stem not in BAGS
    assert first_line(path).endswith("."), "the first line of the docstring is a sentence"


def test_no_room_has_more_modules_than_one_sees_at_once() -> None:
    rooms = [folder for room in ROOMS for folder in (PACKAGE / room, *sub_rooms_of(PACKAGE / room))]
    large = {str(room.relative_to(PACKAGE)): len(modules_of(room)) for room in rooms}
    assert {room: count for room, count in large.items() if count > MAX_MODULES} == {}


def test_no_statement_numbers_its_placeholders() -> None:
    """From Python 3.14 on, SQLite's module refuses `?1` with values that come in a sequence."""
    numbered = [path.name for path in MODULES if re.search(r"[=( ]\?\d", path.read_text())]
    assert numbered == []


def test_the_page_on_metrics_has_what_the_samplers_declare() -> None:
    told = "write it anew: python -m tests.guards.metrics_page > docs/metrics.md"
    assert (ROOT / "docs" / "metrics.md").read_text() == metrics_page.drawn(), told


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


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("docs/*.md")) + sorted(ROOT.glob("*.md")), ids=lambda one: one.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((?:docs/)?([\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert {page.name for page in ROOT.glob("docs/*.md")} <= linked
