"""All that users build on is as the golden files have it, and files of earlier versions load."""

from __future__ import annotations

import argparse
import difflib
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stepscope.cli.checks.settings_check import problems_of
from stepscope.cli.main import COMMANDS, _parser
from stepscope.config.load import load
from stepscope.config.sections import to_dict
from tests.golden import surface
from tests.golden.command_line import JSON_OUTPUTS, render_json_outputs

SETTINGS = surface.HERE / "settings-v1.yaml"
MAX_SHOWN_LINES = 60
WHY = (
    "What users build on changed: tests/golden/{name} differs. If that is on purpose, run `make golden` and "
    "explain each line in CHANGELOG.md.\n{difference}"
)


@functools.cache
def json_outputs() -> dict[str, str]:
    return render_json_outputs()


def compare(name: str, rendered: str) -> None:
    path = surface.HERE / name
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    if rendered != expected:
        lines = difflib.unified_diff(
            expected.splitlines(), rendered.splitlines(), "golden", "now", lineterm="", n=1
        )
        difference = "\n".join(list(lines)[:MAX_SHOWN_LINES])
        pytest.fail(WHY.format(name=name, difference=difference), pytrace=False)


@pytest.mark.parametrize("name", surface.FILES)
def test_what_users_build_on_is_as_it_was(name: str) -> None:
    compare(name, surface.FILES[name]())


@pytest.mark.parametrize("name", JSON_OUTPUTS)
def test_what_commands_print_as_json_is_as_it_was(name: str) -> None:
    file_name = f"cli_json/{name}.json"
    compare(file_name, json_outputs()[file_name])


def test_every_command_that_prints_json_has_a_golden_file() -> None:
    commands = {words for command in COMMANDS for words in commands_with_json(_parser(command))}
    assert {name.split("_")[0] for name in JSON_OUTPUTS} == {*(words[0] for words in commands), "export"}
    nested = {"_".join(words) for words in commands if len(words) > 1}
    assert nested <= set(JSON_OUTPUTS)
    files = {path.stem for path in (surface.HERE / "cli_json").iterdir()}
    assert files == set(JSON_OUTPUTS)


def commands_with_json(
    parser: argparse.ArgumentParser, above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    if "--json" in parser._option_string_actions:
        yield above
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, subparser in action.choices.items():
                yield from commands_with_json(subparser, (*above, name))


def test_a_settings_file_of_the_first_version_loads_with_every_value(tmp_path: Path) -> None:
    written = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    (tmp_path / "prices.yaml").write_text("carbon: {}\n")
    (tmp_path / "salt.txt").write_text("a long secret text of the people who train here\n")
    loaded = load(SETTINGS, environment={}, directory=tmp_path)
    assert loaded.notes == ()
    assert [str(problem) for problem in problems_of(loaded)] == []
    read = to_dict(loaded.settings)
    assert _part_of(read, written) == written


def _part_of(read: object, written: object) -> object:
    """What was read, without the settings that later versions added."""
    if not isinstance(read, dict) or not isinstance(written, dict):
        return read
    return {key: _part_of(read[key], written[key]) for key in written}
