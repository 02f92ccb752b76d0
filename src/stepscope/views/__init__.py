"""What is shown, computed once: commands, pages and reports only draw it."""

from __future__ import annotations

from stepscope.lazy_names import lazy_names

TYPE_CHECKING = False  # as type checkers read it; importing typing would take longer than this
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
