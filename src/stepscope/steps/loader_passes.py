"""Counts the passes over a data loader in a loop that does not hand it to `batches`."""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import TYPE_CHECKING, Any

from stepscope.steps.compiled_code import never_compiled, passes_through
from stepscope.steps.patches import Installed, install, put_all_back

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class LoaderPasses:
    """Tells the number of each pass that is begun over a loader of PyTorch, to train with it.

    Each loader is counted by itself: who evaluates after every epoch begins as many passes over the other.
    """

    def __init__(
        self, torch: ModuleType, is_training: Callable[[], bool], tell: Callable[[int], None]
    ) -> None:
        self._is_training, self._tell = is_training, tell
        self._passes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._installed: Installed = []
        self.before = 0
        """Passes that had begun before anybody counted."""
        install(self._installed, torch.utils.data.DataLoader, "__iter__", self._counted)

    def close(self) -> None:
        """Leaves the class of the loaders as it was."""
        put_all_back(self._installed)

    @never_compiled
    def _count(self, loader: Any) -> None:
        if self._is_training():
            number = self._passes.get(loader, self.before)
            self._passes[loader] = number + 1
            self._tell(number)

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @passes_through
        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:  # noqa: N807 - it stands for that method
            with contextlib.suppress(Exception):  # a failure of ours must not end the training
                self._count(loader)
            return original(loader)

        return __iter__
