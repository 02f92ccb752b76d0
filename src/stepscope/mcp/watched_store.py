"""Opens the store for a tool call: what the journals hold is read in first, and runs are found by name."""

from __future__ import annotations

import contextlib
import difflib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.agent.process.attend import catch_up
from stepscope.errors import NotFound, StepscopeError
from stepscope.mcp.answers import clean_text
from stepscope.web.app_state import AppState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stepscope.reading import Run
    from stepscope.store.mark_store import MarkStore
    from stepscope.views.runs.run_rows import RunRow
    from stepscope.web.reader_pool import OpenStore
    from stepscope.web.server.options import ServerOptions

MAX_NAME = 100
"""Longer names of runs are replaced by ids."""

MAX_NAMED = 5
"""Names that a message about an unknown one lists."""


@dataclass(frozen=True)
class CalledStore:
    """The store for the time of one tool call."""

    opened: OpenStore
    marks: MarkStore

    def run(self, name: str) -> Run:
        """Returns a run by its id, its name or its name on the page; the newest for an empty name."""
        runs = self.opened.runs.runs()
        if not runs:
            raise NotFound("The store has no run yet. Record one, for example with: stepscope demo")
        if not name:
            return runs[-1]
        with contextlib.suppress(NotFound):
            return self.opened.run(name)
        same_name = [run for run in runs if name in self._names(run)]
        if len(same_name) == 1:
            return same_name[0]
        if same_name:
            ids = ", ".join(run.id for run in same_name)
            raise NotFound(f"{len(same_name)} runs are named {name[:100]!r}. Use one of the ids: {ids}")
        names = [self.marks.name(run.id) or run.name for run in reversed(runs)]
        known = similar(name, [*names, *(run.id for run in runs)])
        raise NotFound(f"There is no run {name[:100]!r}; {known}")

    def _names(self, run: Run) -> tuple[str | None, ...]:
        """Returns the names of a run: as recorded, as on the page, and its id as answers show it."""
        return run.name, self.marks.name(run.id), clean_text(run.id)


class WatchedStore:
    """The store that the tools read, with the caches and files that the page's server has, too."""

    def __init__(self, options: ServerOptions) -> None:
        self.state = AppState(options)
        self.folder = options.folder
        self._catching_up = threading.Lock()

    @contextlib.contextmanager
    def open(self) -> Iterator[CalledStore]:
        """Opens the store for one call, after it has what was recorded until now."""
        # Two threads of one process cannot both be the agent.
        with self._catching_up, contextlib.suppress(StepscopeError, OSError):
            catch_up(self.folder)
        with self.state.readers.open() as opened:
            yield CalledStore(opened, self.state.marks)

    def rows(self, called: CalledStore) -> list[RunRow]:
        """Returns a row for each run, oldest first."""
        return self.state.rows(called.opened)

    def handle(self, run: Run, called: CalledStore) -> str:
        """Returns what to call a run in the next call."""
        return handle_of(run.id, run.name, [other.name for other in called.opened.runs.runs()])

    def close(self) -> None:
        """Closes all files."""
        self.state.close()


def handle_of(run_id: str, name: str, names: Sequence[str]) -> str:
    """Returns a run's name; its id if other runs have that name, or if answers cannot show it as it is."""
    is_shown = name == clean_text(name) and len(name) <= MAX_NAME
    return name if is_shown and names.count(name) == 1 else run_id


def similar(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: names similar to `name`, or the first few known ones."""
    names = list(dict.fromkeys(known))
    matches = difflib.get_close_matches(name, names, n=MAX_NAMED, cutoff=0.5)
    if matches:
        return f"did you mean {' or '.join(map(repr, matches))}?"
    if not names:
        return "there are none."
    return f"there are: {', '.join(names[:MAX_NAMED])}{', …' if len(names) > MAX_NAMED else ''}."
