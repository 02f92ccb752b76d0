"""Databases of other tools: what is written is read, and nothing of theirs is run."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from stepscope.errors import SourceError
from stepscope.source_files.read_only_database import ReadOnlyDatabase


def made(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    return connection


def test_only_plain_tables_and_plain_columns_are_known(tmp_path):
    made(
        tmp_path / "x.db",
        "CREATE TABLE plain (a, b, c GENERATED ALWAYS AS (a + b))",
        "CREATE VIEW seen AS SELECT a, b FROM plain",
        "CREATE VIRTUAL TABLE searched USING fts5 (a)",
    ).close()
    with contextlib.closing(ReadOnlyDatabase(tmp_path / "x.db")) as database:
        assert database.columns("plain") == {"a", "b"}
        assert database.columns("seen") == set()
        assert database.columns("searched") == set()
        assert database.columns("missing") == set()


def test_rows_that_are_only_in_the_log_are_read(tmp_path):
    path = tmp_path / "größe #1?.db"
    writer = made(path, "PRAGMA journal_mode = WAL", "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
    with contextlib.closing(writer), contextlib.closing(ReadOnlyDatabase(path)) as database:
        assert list(database.rows("SELECT a FROM t")) == [(1,)]


def test_nothing_can_be_written(tmp_path):
    made(tmp_path / "x.db", "CREATE TABLE t (a)").close()
    database = ReadOnlyDatabase(tmp_path / "x.db")
    with contextlib.closing(database), pytest.raises(SourceError, match="readonly"):
        list(database.rows("INSERT INTO t VALUES (1)"))


def test_text_that_is_not_utf8_is_escaped(tmp_path):
    made(tmp_path / "x.db", "CREATE TABLE t (a)", "INSERT INTO t VALUES (CAST(x'ff41' AS TEXT))").close()
    with contextlib.closing(ReadOnlyDatabase(tmp_path / "x.db")) as database:
        assert list(database.rows("SELECT a FROM t")) == [("\\xffA",)]
