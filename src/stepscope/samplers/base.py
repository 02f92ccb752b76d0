"""The interface of samplers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepscope.schema.sample import Metric, Reading, Watched


class Sampler(ABC):
    """Polls one thing. It is called by one thread at a time, outside the training process.

    The name of its file is its name in the settings. Its constructor's arguments are its options there;
    injected ones for tests (a clock, a folder, devices) come after a `*` and start with an underscore.
    """

    interval_s: ClassVar[float] = 1.0
    """How often it is polled by default."""

    metrics: ClassVar[tuple[Metric, ...]]
    """Every metric it may return; docs/metrics.md is checked against it."""

    @abstractmethod
    def sample(self, watched: Sequence[Watched]) -> Iterable[Reading]:
        """Reads everything that can be read now; `watched` are the recording processes of this host."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Frees the resources of the sampler."""
