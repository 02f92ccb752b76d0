"""The interface of everything that is polled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepscope.schema.sample import Metric, Reading, Watched


class Sampler(ABC):
    """Polls one thing. It is called by one thread at a time, in a process that is not the training.

    The name of its file is its name in the settings. Its constructor's arguments are its options there; those
    that stand in for the world (a clock, a folder, devices) come after a `*` and begin with an underscore.
    """

    interval_s: ClassVar[float] = 1.0
    """How often it is polled unless settings say otherwise."""

    metrics: ClassVar[tuple[Metric, ...]]
    """Every figure it may read; the page on metrics is checked against it."""

    @abstractmethod
    def sample(self, watched: Sequence[Watched]) -> Iterable[Reading]:
        """Reads everything that can be read now; `watched` are the recording processes of this host."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Lets go of what it holds."""
