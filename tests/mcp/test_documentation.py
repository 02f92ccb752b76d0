"""What the page on assistants says is done as it is written, and the skill is one that assistants accept."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp")

import yaml

from mcp import Client, StdioServerParameters
from stepscope.cli.main import main
from stepscope.errors import StepscopeError
from stepscope.mcp.skill import skill_text, write_skill
from tests.golden.fixed_store import fill
from tests.mcp.asking import client_of, content_of

PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"
STEPSCOPE = Path(sys.executable).with_name("stepscope")


def page_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def tool_names(folder: Path, *, allows_writes: bool) -> set[str]:
    async def ask() -> set[str]:
        async with client_of(folder, allows_writes=allows_writes) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    return asyncio.run(ask())


@pytest.mark.slow
def test_the_entry_for_a_client_on_the_page_starts_a_server_that_answers(folder: Path) -> None:
    fill(folder)
    entry = json.loads(page_blocks("json")[0])["mcpServers"]["stepscope"]
    assert entry["command"] == STEPSCOPE.name
    arguments = [str(folder) if "/" in argument else argument for argument in entry["args"]]
    parameters = StdioServerParameters(command=str(STEPSCOPE), args=arguments, env=dict(os.environ))

    async def ask() -> dict:
        async with Client(parameters) as client:
            return content_of(await client.call_tool("explain_run", {}))

    assert asyncio.run(ask())["finding"]["id"] == "input.exposed_wait"


def test_the_http_entry_on_the_page_has_the_address_that_the_command_prints() -> None:
    entry = json.loads(page_blocks("json")[1])["mcpServers"]["stepscope"]
    (printed,) = (block for block in page_blocks("console") if "--http" in block)
    assert entry["url"] == printed.splitlines()[1].split()[1]
    assert entry["headers"] == {"Authorization": "Bearer TOKEN"}


def test_the_page_lists_every_tool_and_no_other(folder: Path) -> None:
    listed = set(re.findall(r"`([a-z]+_[a-z]+)`", "".join(re.findall(r"^\| `.*?\|", PAGE.read_text(), re.M))))
    assert listed == tool_names(folder, allows_writes=True)


def test_the_skill_on_the_page_is_written_by_the_command(tmp_path: Path, capsys) -> None:
    (block,) = (block for block in page_blocks("console") if "--write-skill" in block)
    command, printed = block.splitlines()
    assert main(command.split()[2:]) == 0
    assert capsys.readouterr().out.strip() == printed
    assert (tmp_path / printed).read_text() == skill_text()


def test_the_skill_has_the_head_that_assistants_read_and_names_existing_tools(folder: Path) -> None:
    _, head, body = skill_text().split("---\n", 2)
    fields = yaml.safe_load(head)
    assert fields["name"] == "stepscope"
    assert len(fields["description"]) <= 1024
    named = set(re.findall(r"\| `([a-z_]+)` \|", body))
    assert named == tool_names(folder, allows_writes=False)


def test_a_skill_that_somebody_changed_is_kept(tmp_path: Path) -> None:
    path = write_skill(tmp_path)
    assert write_skill(tmp_path) == path
    path.write_text("my own words")
    with pytest.raises(StepscopeError, match="Move it away"):
        write_skill(tmp_path)
    assert path.read_text() == "my own words"


def test_a_skill_is_not_written_where_a_file_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "skills").write_text("a file")
    with pytest.raises(StepscopeError, match="Name a folder"):
        write_skill(tmp_path / "skills")


def test_without_the_extra_the_command_says_how_to_install_it(folder: Path) -> None:
    code = "import sys; sys.modules['mcp'] = None; from stepscope.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "mcp", "--store", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 1
    assert "pip install 'stepscope[mcp]'" in done.stderr
