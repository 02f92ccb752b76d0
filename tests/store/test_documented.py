"""The tables are public, so each of them and each column is documented."""

import re
import sqlite3
from pathlib import Path

import pytest

from stepscope.store.sqlite import SqliteStore

PAGE = (Path(__file__).parents[2] / "docs" / "store.md").read_text()


def documented():
    """The tables of the page with the columns named in each."""
    parts = re.split(r"^### `(\w+)`$", PAGE, flags=re.MULTILINE)[1:]
    return {
        name: re.findall(r"^\| `(\w+)` \| .+\. \|$", text.partition("\n## ")[0], flags=re.MULTILINE)
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


@pytest.fixture
def connection(tmp_path):
    SqliteStore(tmp_path / "store.sqlite").close()
    opened = sqlite3.connect(tmp_path / "store.sqlite")
    yield opened
    opened.close()


def test_every_table_and_column_is_documented_and_no_other(connection):
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = {
        name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
        for name in names
        if not name.startswith("sqlite_")
    }
    assert documented() == columns


def test_every_query_of_the_page_can_be_asked(connection):
    queries = re.search(r"```sql\n(.+?)```", PAGE, flags=re.DOTALL)[1].split(";")[:-1]
    assert len(queries) == 4
    for query in queries:
        assert connection.execute(query).fetchall() in ([], [(None,)])
