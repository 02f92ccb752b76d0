"""The verdict on one run as all of its pages give it: what was found, or else what sets its pace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepscope.views.verdict import WAITS, verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from stepscope.analysis.diagnose import Diagnosis
    from stepscope.analysis.verdict import Verdict
    from stepscope.reading import Run
    from stepscope.views.verdict import Known


def run_verdict(run: Run, muted: Collection[str], known: Known, diagnose: Callable[[], Diagnosis]) -> Verdict:
    """What was found; of a run for which nothing was, what a look at its newest steps tells.

    `diagnose` takes that look, which costs more than all the rest: it is called where it is needed.
    """
    verdict = verdict_of(run.findings(), muted, known)
    # The mean of a whole run tells of a wait that may have been mended long ago.
    if verdict.severity != "ok" and verdict.id != WAITS:
        return verdict
    found = diagnose()
    if found.verdict.severity == "ok":
        pace = found.verdict.headline.removeprefix("Healthy: ")
        return replace(found.verdict, headline=f"No problem was found: {pace}")
    # While a run goes on, what is new has to be seen twice before it is told: the agent sees to that.
    if known.is_live:
        return verdict
    if found.verdict.severity == "unknown":
        return found.verdict
    return verdict_of([one.as_dict() for one in found.findings], muted, known)
