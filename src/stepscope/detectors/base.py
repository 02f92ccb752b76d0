"""Base class of detectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from stepscope.schema.finding import Finding
    from stepscope.schema.window import RankWindow, Window


class TooLittleEvidence(str):
    """Why a detector could not examine a run."""

    __slots__ = ()


class Detector(ABC):
    """Detects one problem in a window of steps. It does not read the store and keeps no state between calls.

    The file is named after the id, with underscores. A detector is a dataclass: its fields are thresholds,
    which settings may change under `detectors.<id>`.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    sentence: ClassVar[str]
    """When it reports a finding."""

    requires: ClassVar[tuple[tuple[str, ...], ...]]
    """Keys it needs, logged or sampled from the machine; one of each group is enough. A key that ends in `/*`
    stands for all keys with this beginning, the first 64 of them."""

    reads: ClassVar[tuple[str, ...]] = ()
    """Other keys it reads if they were recorded, including those of the machine; `/*` is allowed, too."""

    courses: ClassVar[tuple[str, ...]] = ()
    """Keys it reads over the whole segment, not only the window; of sampled ones, all newest readings."""

    events: ClassVar[tuple[str, ...]] = ()
    """Kinds of events it reads."""

    min_steps: ClassVar[int] = 50
    """Minimum number of steps that have all required keys; 0 if it can do without steps."""

    in_steady_state: ClassVar[bool] = True
    """Whether only steps after the warm-up and without compilation count."""

    in_finite_values: ClassVar[bool] = True
    """Whether only steps count whose required values are finite."""

    for_each_rank: ClassVar[bool] = True
    """Whether it examines every rank; otherwise only the first one that has the required keys."""

    least_ranks: ClassVar[int] = 1
    """Minimum number of ranks of a run; it is skipped for runs with fewer."""

    is_optional: ClassVar[bool] = False
    """Whether it does not apply to runs without the required keys, such as those without a GPU."""

    explains: ClassVar[tuple[str, ...]] = ()
    """Ids of problems that are symptoms of this one and are not reported beside it."""

    @abstractmethod
    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Returns a finding for the steps of a rank, or a sentence that says why there is none.

        The sentence is a `TooLittleEvidence` if the problem could not be examined.
        """


class MachineDetector(Detector):
    """Detects a problem in what was read of the machine during the steps; once for all ranks."""

    min_steps: ClassVar[int] = 1
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True
