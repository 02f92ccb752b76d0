"""The implementations of a store that run through the contract tests."""

from pathlib import Path

from stepscope.store.base import Reader, Store
from stepscope.store.sqlite import SqliteReader, SqliteStore


class OnSqlite:
    """A file."""

    @staticmethod
    def store(folder: Path) -> Store:
        return SqliteStore(folder / "store.sqlite")

    @staticmethod
    def reader(folder: Path) -> Reader:
        return SqliteReader(folder / "store.sqlite")


KINDS = [OnSqlite]
"""A new implementation joins the suite here."""
