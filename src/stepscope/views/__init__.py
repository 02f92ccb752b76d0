"""Computes what commands, pages and reports show; they only format it."""

from __future__ import annotations

from stepscope.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers take it as true; importing typing would take longer than this module
if TYPE_CHECKING:
    from stepscope.views.energy.energy import energy_of
    from stepscope.views.machine.leaks import leaks_of
    from stepscope.views.schedule.schedule import schedule_of

__all__ = ["energy_of", "leaks_of", "schedule_of"]

__getattr__ = lazy_names(
    globals(),
    {
        "energy_of": "stepscope.views.energy.energy",
        "leaks_of": "stepscope.views.machine.leaks",
        "schedule_of": "stepscope.views.schedule.schedule",
    },
)
