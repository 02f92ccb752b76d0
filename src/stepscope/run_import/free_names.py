"""Finds the names that new runs would get, without a file for any of them."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from stepscope.filesystem import read_regular
from stepscope.recorder.identity.run_reservation import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from stepscope.schema.identity import Identity


class FreeNames:
    """The names that `reserve` would give to runs, one after another."""

    def __init__(self, folder: Path) -> None:
        self._runs = folder / FOLDER
        self._segments: dict[str, set[str]] = {}
        """The segments of runs, by their ids, as far as they are known."""

    def add(self, run_ids: Iterable[str]) -> None:
        """Adds the runs of a store; only where an earlier version has made it, they have no files."""
        if not self._runs.is_dir():
            self._segments.update((run_id, set()) for run_id in run_ids)

    def take(self, identity: Identity) -> Identity:
        """The identity under a name that no other run has, nor one that was taken before."""
        named, number = identity, 1
        while not self._is_free(named):
            number += 1
            named = replace(identity, name=f"{identity.name}-{number}")
        self._segments.setdefault(named.run_id, set()).add(named.segment)
        return named

    def _is_free(self, identity: Identity) -> bool:
        path = self._runs / identity.run_id
        if identity.run_id not in self._segments and path.exists():
            self._segments[identity.run_id] = _segments_in(path)
        segments = self._segments.get(identity.run_id)
        return segments is None or identity.segment in segments


def _segments_in(path: Path) -> set[str]:
    """The segments of a run; none where its file belongs to another user or is damaged."""
    segments = set()
    with contextlib.suppress(OSError):
        for line in read_regular(path).splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                segments.add(str(json.loads(line)["segment"]))
    return segments
