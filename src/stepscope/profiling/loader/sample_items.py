"""Asks a dataset for samples one by one, for a limited time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.errors import StepscopeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.profiling.model.timings import Clock

MAX_SECONDS = 5.0


class NotByNumber(StepscopeError):
    """A dataset whose samples cannot be asked for by number."""

    def __init__(self) -> None:
        super().__init__("samples cannot be asked for by number")


def timed_items(dataset: Any, most: int, clock: Clock) -> Iterator[tuple[Any, float]]:
    """The first samples and the seconds each took; ends after five seconds, but not before one."""
    try:
        count = min(most, len(dataset))
        began_at = clock()
        for index in range(count):
            before = clock()
            item = dataset[index]
            after = clock()
            yield item, after - before
            if after - began_at > MAX_SECONDS:
                return
    except (LookupError, NotImplementedError, TypeError) as error:
        raise NotByNumber from error
