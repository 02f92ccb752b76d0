"""Guards: a setting that is not documented does not exist."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from stepscope.config.document_keys import NO_EFFECT, TODAY
from stepscope.config.environment import variable_of
from stepscope.config.find import RESERVED, SHORT_NAMES
from stepscope.config.load import load
from stepscope.config.reference import descriptions

SETTINGS = list(descriptions())
PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


def row(setting):
    cells = (f"`{setting.name}`", setting.allowed, f"`{setting.default}`", setting.sentence)
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_has_its_row_on_the_page(setting):
    assert row(setting) in PAGE, f"Add to docs/configuration.md: {row(setting)}"


def test_the_page_documents_no_setting_that_is_gone():
    known = {setting.name for setting in SETTINGS}
    owners = PAGE.index("## Whose settings apply"), PAGE.index("## Environment variables")
    rows = [line.split("`")[1] for line in PAGE[: owners[0]].splitlines() if line.startswith("| `")]
    rows += [line.split("`")[1] for line in PAGE[owners[1] :].splitlines() if line.startswith("| `")]
    older = {*TODAY, *NO_EFFECT}
    stale = {name for name in rows if name not in known | older and not name.isupper()}
    assert not stale


def test_the_page_says_of_every_setting_to_what_it_applies():
    part = PAGE[PAGE.index("## Whose settings apply") :].partition("\n## ")[0]
    patterns = {word for word in re.findall(r"`([a-z_.]+(?:\*)?)`", part) if not word.startswith("journal")}
    unsaid = [
        setting.name
        for setting in SETTINGS
        if setting.name != "directory"
        and not any(fnmatch(setting.name, pattern) for pattern in patterns)
        and not any(fnmatch(f"{setting.name}.x", pattern) for pattern in patterns)
    ]
    assert not unsaid


@pytest.mark.parametrize("name", sorted(TODAY))
def test_every_older_key_is_on_the_page_with_todays(name):
    assert f"| `{name}` | `{'.'.join(TODAY[name])}` |" in PAGE


@pytest.mark.parametrize("name", sorted(NO_EFFECT))
def test_every_key_without_effect_is_on_the_page(name):
    assert f"| `{name}` | {NO_EFFECT[name]} |" in PAGE


@pytest.mark.parametrize("name", sorted({*SHORT_NAMES, *RESERVED}))
def test_every_special_variable_is_on_the_page(name):
    assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_has_a_variable(tmp_path, setting):
    variable = variable_of(setting.key)
    environment = {variable: setting.default.strip('"')}
    origins = load(environment=environment, directory=tmp_path).origins
    assert origins[setting.name] == f"environment {variable}"
