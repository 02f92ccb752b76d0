"""Counts the passes over a data loader in loops that do not use `batches`."""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import TYPE_CHECKING, Any

from stepscope.steps.compiled_code import never_compiled, passes_through
from stepscope.steps.patches import Installed, install, remove_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class LoaderPasses:
    """Reports the number of each training pass over a PyTorch data loader.

    Each dataset has its own count: a loop that evaluates after every epoch makes as many passes over another
    one, and a loop may create a loader for every epoch.
    """

    def __init__(
        self, torch: ModuleType, is_training: Callable[[], bool], report: Callable[[int], None]
    ) -> None:
        self._is_training, self._report = is_training, report
        self._passes: dict[int, tuple[weakref.ref[Any], int]] = {}
        """Passes over each dataset, by its id, with a reference that shows whether it still exists."""
        self._installed: Installed = []
        self.before = 0
        """Passes that had begun before counting started."""
        install(self._installed, torch.utils.data.DataLoader, "__iter__", self._counted)

    def close(self) -> None:
        """Restores the `DataLoader` class."""
        remove_all(self._installed)

    @never_compiled
    def _count(self, loader: Any) -> None:
        if self._is_training():
            counted = getattr(loader, "dataset", loader)
            try:
                reference = weakref.ref(counted)
            except TypeError:  # of a list, for example, there are none
                counted, reference = loader, weakref.ref(loader)
            # By identity: two tensors cannot be compared, and two datasets with equal rows are not the same.
            known, number = self._passes.get(id(counted), (reference, self.before))
            if known() is not counted:
                number = self.before
            self._passes[id(counted)] = reference, number + 1
            self._report(number)

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @passes_through
        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:  # noqa: N807 - it replaces that method
            with contextlib.suppress(Exception):  # a failure of stepscope must not stop the training
                self._count(loader)
            return original(loader)

        return __iter__
