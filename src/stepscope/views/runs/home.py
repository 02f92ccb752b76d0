"""The first page of all: what runs, what needs attention, what ran last, and the machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepscope.analysis.verdict import rank_of
from stepscope.schema.run import LIVE
from stepscope.views.runs.attention import Attention, attention_of, may_need_attention
from stepscope.views.runs.host_now import HostNow, hosts_now
from stepscope.views.runs.run_rows import KeptFigures, RunRow, run_row

if TYPE_CHECKING:
    from stepscope.reading import Runs
    from stepscope.views.runs.marks import Marks

MAX_RECENT = 10
MAX_ATTENTION = 1000
"""So many runs are sent; there is one entry for each, and the list of runs counts the same ones."""


@dataclass(frozen=True)
class Home:
    """The page."""

    running: tuple[RunRow, ...]
    attention: tuple[Attention, ...]
    recent: tuple[RunRow, ...]
    hosts: tuple[HostNow, ...]


def home_of(runs: Runs, marks: Marks, now_ns: int, kept: KeptFigures | None = None) -> Home:
    """All of it, of the runs that nobody has put aside; a live run is shown in any case."""
    kept = kept or KeptFigures()
    every = runs.runs()
    live = [run for run in every if run.status in LIVE]
    ended = [run for run in every if run.status not in LIVE and not marks.archived(run.id)]
    ended.sort(key=lambda run: run.info.ended_ns or run.info.last_ns)
    recent = ended[-MAX_RECENT:][::-1]
    # The figures of runs that nobody needs to look at are not read: there may be thousands.
    looked_at = [run for run in (*live, *ended) if may_need_attention(run, marks, now_ns)]
    kept.begin_list()
    several = [
        attention_of(run, marks, kept.of(run, now_ns), now_ns, kept.diagnosis(run, now_ns))
        for run in looked_at
    ]
    attention = [one for one in several if one is not None]
    attention.sort(key=lambda one: (rank_of(one.severity), -one.since))
    return Home(
        running=tuple(run_row(run, marks, now_ns, kept) for run in reversed(live)),
        attention=tuple(attention[:MAX_ATTENTION]),
        recent=tuple(run_row(run, marks, now_ns, kept) for run in recent),
        hosts=hosts_now(every, now_ns),
    )
