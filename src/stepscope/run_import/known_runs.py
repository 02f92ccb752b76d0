"""The imported runs of a store, by where they come from, and whether their source has changed since."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.errors import NotFound
from stepscope.journal.folder import list_journals, opening_of
from stepscope.reading import open_store
from stepscope.schema.keys import IMPORTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from stepscope.reading import Run
    from stepscope.run_import.run_journal import Summary


class KnownRun(NamedTuple):
    """An imported run, and what was read then."""

    run_id: str
    name: str
    project: str
    source: str
    points: int | None
    """None where an agent has not stored its end yet."""
    content: str | None
    """The digest of what was read; None for runs that an earlier version has imported."""

    def difference(self, summary: Summary) -> str:
        """What the source has now and the run has not; empty where they are the same."""
        if self.points is None or summary.content == self.content:
            return ""
        more = summary.points - self.points
        if more:
            comparison, points = "more" if more > 0 else "fewer", "point" if abs(more) == 1 else "points"
            return f"the source has {abs(more):,} {comparison} {points} than were imported"
        if self.content is None:
            return ""
        return "the source has as many points as were imported, but other values, texts or parameters"


class KnownRuns:
    """The imported runs of a store."""

    def __init__(self, folder: Path) -> None:
        self._by_digest: dict[str, dict[str, KnownRun]] = {}
        self.run_ids: set[str] = set()
        """All runs of the store, also those that were recorded there."""
        if not folder.exists():
            return
        for name, path in list_journals(folder):  # of an import that no agent has stored yet
            opening = opening_of(path) or {}
            self.run_ids.add(name.run_id)
            names = str(opening.get("run")), str(opening.get("project"))
            self._add_facts(opening.get("facts"), name.run_id, names, {})
        with contextlib.suppress(NotFound), contextlib.closing(open_store(folder)) as store:
            for run in store.runs():
                self.run_ids.add(run.id)
                self._add_stored(run)

    def of(self, digests: Sequence[str]) -> list[KnownRun]:
        """The runs with one of several digests, of the first that any run has."""
        known = next((self._by_digest[digest] for digest in digests if digest in self._by_digest), {})
        return list(known.values())

    def add(self, digest: str, run: KnownRun) -> None:
        """Adds a run that was imported just now."""
        self._by_digest.setdefault(digest, {})[run.run_id] = run

    def _add_stored(self, run: Run) -> None:
        processes = [process for segment in run.segments for process in segment.processes]
        facts = next((process.facts for process in processes if IMPORTED in process.facts), None)
        if facts is not None:
            events = run.own_events(IMPORTED)
            self._add_facts(facts, run.id, (run.name, run.project), events[-1].fields if events else {})

    def _add_facts(
        self, facts: Any, run_id: str, names: tuple[str, str], imported: Mapping[str, Any]
    ) -> None:
        origin = facts.get(IMPORTED) if isinstance(facts, dict) else None
        if isinstance(origin, dict):
            known = KnownRun(
                run_id, *names, str(origin.get("source")), imported.get("points"), imported.get("content")
            )
            self.add(str(origin.get("digest")), known)
