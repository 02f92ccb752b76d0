"""Loads from the store the points that the rules of a run need and the agent has not received."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.schema.series import Selection

if TYPE_CHECKING:
    from stepscope.alerts.run_watch import RunWatch
    from stepscope.store.base import Reader


def catch_up(run: RunWatch, store: Reader, segment: str, evaluated_until_ns: int | None = None) -> None:
    """Loads the history of metrics that a run lacks: those of an earlier agent's time, or of a new rule.

    Points in the store must have been received already, or must not be received again. Machine metrics are
    received before the store has them: points that the store lacks are kept from the history.

    An earlier agent has evaluated all points until `evaluated_until_ns`. Without it, a new rule is evaluated
    with the newest points, and the other rules continue where they were.
    """
    missing = run.missing_history
    before = run.history.forget(missing)
    for source, keys in store.sources(run.run_id).items():
        for key in missing.intersection(keys) if source.segment == segment else ():
            points = store.points(
                Selection(run.run_id, key, segment, source.rank, source.host, source.device, source.axis)
            )
            run.history.add(source, [key], points.steps, points.times_ns, points.values[:, None])
    for key, series in before.items():
        for subject, recent in series.items():
            run.history.add_newer(key, subject, recent)
    for key in missing:
        for subject, recent in run.history.of(key).items():
            known = before.get(key, {}).get(subject)
            if evaluated_until_ns is not None:
                recent.mark_evaluated_until(evaluated_until_ns)
            else:
                recent.unevaluated = 0 if known is None else min(known.unevaluated, len(recent))
    missing.clear()
