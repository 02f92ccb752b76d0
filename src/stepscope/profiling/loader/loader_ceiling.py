"""Builds the loader that a loader is measured against: the same one, with its samples already in memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from stepscope.errors import StepscopeError
from stepscope.profiling.loader.sample_items import NotByNumber, timed_items

if TYPE_CHECKING:
    from stepscope.profiling.model.timings import Clock

ITEMS = 64
METHOD = "the same workers, batch size and collation over {count} of its samples kept in memory"


class NoCeiling(StepscopeError):
    """A loader that cannot be built again without its data."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"there is none, as {reason}; give consumer_samples_per_second")


def loader_in_memory(loader: Any, samples: int, clock: Clock) -> tuple[Any, str]:
    """A loader that gives so many samples, and what it is; raises NoCeiling with the reason."""
    torch = sys.modules.get("torch")  # whoever has a DataLoader has loaded it
    if torch is None or not isinstance(loader, torch.utils.data.DataLoader):
        raise NoCeiling("it is no torch DataLoader")
    data = torch.utils.data
    if isinstance(loader.dataset, data.IterableDataset):
        raise NoCeiling("its dataset is a stream")
    if loader.batch_size is None:
        raise NoCeiling("its batches are not put together by the loader")
    try:
        kept = [item for item, _ in timed_items(loader.dataset, ITEMS, clock)]
    except NotByNumber as error:
        raise NoCeiling(str(error)) from error
    in_memory = data.DataLoader(
        Kept(kept, samples),
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        prefetch_factor=loader.prefetch_factor,
        multiprocessing_context=loader.multiprocessing_context,
    )
    return in_memory, METHOD.format(count=len(kept))


class Kept:
    """A dataset whose samples are there already; it gives the same few again and again."""

    def __init__(self, samples: list[Any], length: int) -> None:
        self._samples, self._length = samples, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._samples[index % len(self._samples)]
