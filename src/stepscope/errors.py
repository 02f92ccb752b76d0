"""The exceptions of stepscope.

StepscopeError
├── ConfigError           a setting is unknown, or its value is not allowed
├── MissingExtra          a feature needs a package that is not installed
├── RecorderError         a log call failed (raised only with strict=True)
├── SourceError           a file of another tool is damaged, or not one that can be imported
├── JournalError          a journal cannot be written or is not one of ours
│   └── TooManyKeys       a run has reached its limit of metric names
└── StoreError            the store cannot be opened, or was written by another version
    ├── StoreLocked       another process is the store's writer
    ├── StoreUnavailable  the store cannot be used now: its disk is full, or it does not answer
    ├── StoreDamaged      the store's data is damaged, or is not a store
    └── NotFound          there is no such store, run or series
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container


class StepscopeError(Exception):
    """Base class of the exceptions that stepscope raises on purpose."""


class ConfigError(StepscopeError):
    """A setting is unknown, or its value is not allowed."""


class MissingExtra(StepscopeError):
    """A feature needs a package that is not installed."""

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs an extra package. Install it with: pip install 'stepscope[{extra}]'"
        )


class RecorderError(StepscopeError):
    """A log call failed; raised only with strict=True."""


class SourceError(StepscopeError):
    """A file of another tool is damaged, or not one that can be imported; nothing of it is kept."""


class JournalError(StepscopeError):
    """A journal cannot be written, or is not one of ours."""


class ValuesOnDevice(JournalError):
    """A row has values on a GPU; packing them would wait for it."""


class TooManyKeys(JournalError):
    """A run has reached its limit of metric names."""

    def __init__(self, limit: int, known: Container[object]) -> None:
        super().__init__(
            f"This process has logged {limit} different keys, the most allowed; further keys are dropped "
            "and counted. Put what varies into values, or raise recorder.max_keys."
        )
        self.known = known


class StoreError(StepscopeError):
    """The store cannot be opened, or was written by another version."""


class StoreLocked(StoreError):
    """Another process is the store's writer."""


class StoreUnavailable(StoreError):
    """The store cannot be used now: its disk is full, or it does not answer; trying again later may work."""


class StoreDamaged(StoreError):
    """The store's data is damaged, or is not a store."""


class NotFound(StoreError):
    """There is no such store, run or series."""
