"""The default store: one SQLite file. Only `store.open` and tests name its classes."""

from stepscope.store.sqlite.sqlite_reader import SqliteReader as SqliteReader
from stepscope.store.sqlite.sqlite_store import SqliteStore as SqliteStore
