"""Opens the store for a tool call: what the journals hold is read in first, and runs are found by name."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.agent.process.attend import catch_up
from stepscope.errors import NotFound, StepscopeError, StoreError
from stepscope.filesystem import is_closed
from stepscope.mcp.answers import MAX_NAMED, listed, one_line, quoted
from stepscope.store.open import has_store
from stepscope.web.app_state import AppState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stepscope.reading import Run
    from stepscope.store.mark_store import MarkStore
    from stepscope.views.runs.run_rows import RunRow
    from stepscope.web.reader_pool import OpenStore
    from stepscope.web.server.options import ServerOptions

MAX_NAME = 100
"""Longer names of runs are replaced by ids; longer ids and keys are cut, and end in a digest."""


@dataclass(frozen=True)
class CalledStore:
    """The store for the time of one tool call."""

    opened: OpenStore
    marks: MarkStore

    def run(self, name: str) -> Run:
        """Returns a run by its id, its name on the page or as recorded; the newest for an empty name."""
        runs = self.opened.runs.runs()
        if not runs:
            raise NotFound("The store has no run yet. Record one, for example with: stepscope demo")
        if not name:
            return runs[-1]
        for name_of in (_id, self.name, _recorded_name, _id_in_answers):
            same_name = [run for run in runs if name_of(run) == name]
            if len(same_name) == 1:
                return same_name[0]
            if same_name:
                ids = listed([quoted(handle_of_id(run.id)) for run in same_name])
                raise NotFound(f"{len(same_name)} runs are named {quoted(name)}. Use one of the ids: {ids}")
        with contextlib.suppress(NotFound):  # the name that a launcher gave a run before its monitor did
            return self.opened.run(name)
        names = [self.name(run) for run in reversed(runs)]
        ids_in_answers = [handle_of_id(run.id) for run in reversed(runs)]
        known = similar(name, [*filter(_is_shown, names), *ids_in_answers])
        raise NotFound(f"There is no run {quoted(name)}; {known}")

    def name(self, run: Run) -> str:
        """Returns the name of a run on the page, which people may have changed."""
        return self.marks.name(run.id) or run.name

    def key_handles(self, run: Run) -> dict[str, str]:
        """Returns what to call each recorded key of a run."""
        return handles_of_keys(sorted({counter.key for counter in self.opened.reader.counters(run.id)}))


class WatchedStore:
    """The store that the tools read, with the caches and files that the page's server has, too."""

    def __init__(self, options: ServerOptions) -> None:
        self.state = AppState(options)
        self.folder = options.folder
        self._catching_up = threading.Lock()

    @contextlib.contextmanager
    def open(self) -> Iterator[CalledStore]:
        """Opens the store for one call, with what was recorded until now; raises NotFound without one."""
        if is_closed(self.folder):
            raise StoreError(f"This user may not enter {self.folder}. Ask its owner for access.")
        # Two threads of one process cannot both be the agent.
        with self._catching_up, contextlib.suppress(StepscopeError, OSError):
            catch_up(self.folder)
        if not has_store(self.folder):
            raise NotFound(
                f"There is no store at {self.folder}. Record a run first, or start stepscope mcp with "
                "another folder: --store DIR."
            )
        with self.state.readers.open() as opened:
            yield CalledStore(opened, self.state.marks)

    def rows(self, called: CalledStore) -> list[RunRow]:
        """Returns a row for each run, oldest first."""
        return self.state.rows(called.opened)

    def handle(self, run: Run, called: CalledStore) -> str:
        """Returns what to call a run in the next call."""
        return handle_of(run.id, called.name(run), list(map(called.name, called.opened.runs.runs())))

    def close(self) -> None:
        """Closes all files."""
        self.state.close()


def handle_of(run_id: str, name: str, names: Sequence[str]) -> str:
    """Returns a run's name; its id if other runs have that name, or if answers cannot show it as it is."""
    return name if _is_shown(name) and names.count(name) == 1 else handle_of_id(run_id)


def handle_of_id(run_id: str) -> str:
    """Returns what to call a run that is not called by its name."""
    return _handle(run_id, is_unique=True)


def handles_of_keys(keys: Iterable[str]) -> dict[str, str]:
    """Returns what to call each key: the key itself where answers can show it, and no two the same."""
    known = list(dict.fromkeys(keys))
    shown = Counter(map(one_line, known))
    return {key: _handle(key, is_unique=shown[one_line(key)] == 1) for key in known}


def _id(run: Run) -> str:
    return run.id


def _id_in_answers(run: Run) -> str:
    return handle_of_id(run.id)


def _recorded_name(run: Run) -> str:
    return run.name


def _is_shown(name: str) -> bool:
    return name == one_line(name) and len(name) <= MAX_NAME


def _handle(name: str, *, is_unique: bool) -> str:
    text = one_line(name)
    if _is_shown(name) or (is_unique and len(text) <= MAX_NAME):
        return text
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[: MAX_NAME - 10]}~{digest[:8]}"


def similar(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: names similar to `name`, or the first few known ones."""
    names = list(dict.fromkeys(known))
    matches = difflib.get_close_matches(name, names, n=MAX_NAMED, cutoff=0.5)
    if matches:
        return f"did you mean {' or '.join(map(quoted, matches))}?"
    if not names:
        return "there are none."
    return f"there are: {', '.join(map(quoted, names[:MAX_NAMED]))}{', …' if len(names) > MAX_NAMED else ''}."
