"""Counts false alarms on losses of healthy trainings that are made from a seed, a dozen kinds of them."""

from tests.false_alarms.curves import HEALTHY, healthy
from tests.false_alarms.judging import findings_at

from zoo.scoring import Share

SHARES = (0.4, 0.7, 1.0)
"""At these shares of a run it is diagnosed."""


def false_alarms(seeds: int) -> tuple[Share, dict[str, set[str]]]:
    """Returns how many of the curves raised an alarm, and what was reported of which kind."""
    reported: dict[str, set[str]] = {}
    count = 0
    for kind in HEALTHY:
        for seed in range(seeds):
            curve = healthy(kind, seed)
            ids = findings_at(curve, [int(share * len(curve.loss)) for share in SHARES])
            if ids:
                count += 1
                reported.setdefault(kind, set()).update(ids)
    return Share(count, seeds * len(HEALTHY)), reported
