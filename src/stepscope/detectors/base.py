"""The interface of everything that recognises a problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from stepscope.schema.finding import Finding
    from stepscope.schema.window import RankWindow, Window


class Detector(ABC):
    """Recognises one problem. It sees a window, never the store, and keeps nothing from one to the next.

    The name of its file is its id with underscores. It is a dataclass: its fields are its thresholds, which
    settings may change under `detectors.<id>`.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    sentence: ClassVar[str]
    """When it speaks."""

    requires: ClassVar[tuple[tuple[str, ...], ...]]
    """Keys it cannot do without; of each group one is enough."""

    reads: ClassVar[tuple[str, ...]] = ()
    """Keys it looks at where they were recorded, those of the machine among them."""

    courses: ClassVar[tuple[str, ...]] = ()
    """Keys it wants to know since the beginning of the segment."""

    events: ClassVar[tuple[str, ...]] = ()
    """Kinds of events it asks for."""

    min_steps: ClassVar[int] = 50
    """Steps with all it requires, without which it says nothing."""

    in_steady_state: ClassVar[bool] = True
    """Whether only steps after the warm-up count, and without compilations."""

    in_finite_values: ClassVar[bool] = True
    """Whether only steps count at which what it requires is a finite number."""

    for_each_rank: ClassVar[bool] = True
    """Whether every rank is looked at; else the first one that has what is required."""

    least_ranks: ClassVar[int] = 1
    """In runs of fewer ranks the question is not asked."""

    explains: ClassVar[tuple[str, ...]] = ()
    """Ids of problems that are but signs of this one, and are not told beside it."""

    @abstractmethod
    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """What it finds in the steps of a rank; or the reason for finding nothing, as a sentence."""
