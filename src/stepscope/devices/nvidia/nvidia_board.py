"""Queries one NVIDIA board: a refused query affects no other figure, and is not repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from stepscope.devices.gpu import GpuLost

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from types import ModuleType

Answer = TypeVar("Answer")

Call = tuple[object, ...]
"""The name of an NVML function, and its arguments besides the board; a text is the name of a constant."""

REFUSALS = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION", "INVALID_ARGUMENT",
            "ARGUMENT_VERSION_MISMATCH", "DEPRECATED")  # fmt: skip
"""Errors after which the same query will always fail."""

LOSSES = ("GPU_IS_LOST", "RESET_REQUIRED", "UNINITIALIZED", "DRIVER_NOT_LOADED", "GPU_NOT_FOUND",
          "LIB_RM_VERSION_MISMATCH")  # fmt: skip
"""Errors after which every query fails."""


class Board:
    """An NVML handle, and the queries it has refused so far."""

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self.nvml, self.handle = nvml, handle
        self._refusals, self._losses = _codes(nvml, REFUSALS), _codes(nvml, LOSSES)
        self._refused: set[Hashable] = set()
        self._refused_now: set[Hashable] = set()
        self._answers = 0
        self._trouble = "it answers nothing"

    def begin(self) -> None:
        """Starts a reading."""
        self._answers = 0
        self._refused_now.clear()

    def end(self) -> None:
        """Ends a reading: remembers refused queries; raises GpuLost when no query was answered.

        A board that fell off the bus may refuse everything as `not supported`, so refusals count only if
        another query was answered.
        """
        if not self._answers:
            raise GpuLost(self._trouble)
        self._refused |= self._refused_now

    def refuses(self, name: Hashable) -> bool:
        """Whether that query has been refused, earlier or in this reading."""
        return name in self._refused or name in self._refused_now

    def ask(self, name: Hashable, question: Callable[[], Answer]) -> Answer | None:
        """The answer; None when there is none, now or ever. Raises GpuLost when the board is gone."""
        if self.refuses(name):
            return None
        try:
            answer = question()
        except self.nvml.NVMLError as error:
            self.note(name, error.value)
            return None
        self._answers += 1
        return answer

    def note(self, name: Hashable, code: int) -> None:
        """Handles an error: the board is lost, the query is refused for good, or it failed once."""
        trouble = str(self.nvml.NVMLError(code))
        if code in self._losses:
            raise GpuLost(trouble)
        self._trouble = trouble
        if code in self._refusals:
            self._refused_now.add(name)

    def call(self, call_spec: Call) -> Any | None:
        """The result of one NVML function; a function that this NVML lacks counts as refused."""
        function_name, *names = call_spec
        function = getattr(self.nvml, str(function_name), None)
        if function is None:
            self._refused_now.add(call_spec)
            return None
        arguments = [getattr(self.nvml, name) if isinstance(name, str) else name for name in names]
        return self.ask(call_spec, lambda: function(self.handle, *arguments))

    def call_first(self, calls: Iterable[Call]) -> Any | None:
        """The result of the first call that is not refused; a call that only fails once is not replaced."""
        for call_spec in calls:
            answer = self.call(call_spec)
            if not self.refuses(call_spec):
                return answer
        return None


def _codes(nvml: ModuleType, names: Iterable[str]) -> frozenset[int]:
    """The numbers of error codes; older versions of the library lack some."""
    known = (f"NVML_ERROR_{name}" for name in names)
    return frozenset(getattr(nvml, name) for name in known if hasattr(nvml, name))
