"""The interface of everything that takes rows of a run somewhere else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Rows:
    """Rows of a run, in the order logged."""

    labels: Mapping[str, NDArray[Any]]
    """Whose and when, a column each: text (object), int64, float64 or datetime64[ns] in UTC."""
    keys: tuple[str, ...]
    """What the columns of `values` are called; none has the name of a label."""
    values: NDArray[np.float64]
    """A row for each row, a column for each key."""
    present: NDArray[np.bool_]
    """Where False, the key was not logged in that row and the value means nothing."""

    def __len__(self) -> int:
        return len(self.values)


class Exporter(ABC):
    """Takes the rows of one run; all that one exporter is given have the same labels and keys."""

    @abstractmethod
    def publish(self, rows: Rows) -> None:
        """Passes rows on."""

    @abstractmethod
    def close(self) -> None:
        """Completes what was begun; what was opened elsewhere is left open."""
