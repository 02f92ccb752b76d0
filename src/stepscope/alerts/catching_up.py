"""Reads from the store what the rules of a run look back at and nobody has told the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.schema.series import Selection

if TYPE_CHECKING:
    from stepscope.alerts.run_watch import RunWatch
    from stepscope.store.base import Reader


def catch_up(run: RunWatch, store: Reader, segment: str, judged_until_ns: int | None = None) -> None:
    """Gives the history of a run all points of what it is behind with: of an earlier agent, or a new rule.

    Whatever the store holds must have been told already, or not be told again. Figures of the machine are
    told before the store has them: those that it lacks are taken over from the history.

    An earlier agent has judged what was logged until `judged_until_ns`. Without it, a new rule is judged by
    the newest points, and the other rules go on where they were.
    """
    wanted = run.behind
    before = run.history.forget(wanted)
    for source, keys in store.sources(run.run_id).items():
        for key in wanted.intersection(keys) if source.segment == segment else ():
            points = store.points(
                Selection(run.run_id, key, segment, source.rank, source.host, source.device, source.axis)
            )
            run.history.add(source, [key], points.steps, points.times_ns, points.values[:, None])
    for key, series in before.items():
        for subject, recent in series.items():
            run.history.add_newer(key, subject, recent)
    for key in wanted:
        for subject, recent in run.history.of(key).items():
            known = before.get(key, {}).get(subject)
            if judged_until_ns is not None:
                recent.judged_until(judged_until_ns)
            else:
                recent.unjudged = 0 if known is None else min(known.unjudged, len(recent))
    wanted.clear()
