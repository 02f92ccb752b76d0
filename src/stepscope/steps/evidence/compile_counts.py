"""Counts what PyTorch's compiler does in a step: frames, recompilations, graph breaks and their reasons."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

MAX_REASONS = 20
"""Maximum number of different reasons recorded for each kind; further ones are only counted."""

MAX_REASON_LENGTH = 400

_WHOLE_COMPILATIONS = ("entire_frame_compile", "entire_backward_compile")
_LIMIT_WORDS = ("recompile limit", "recompile_limit", "cache_size_limit")
"""Messages of different PyTorch versions when they stop recompiling; there is no exception type for it."""


class CompileCounts:
    """Reads Dynamo's counters; without values while it is not loaded or compiles nothing.

    Once it is loaded, a callback reports every compilation, so that each is recorded with its own step.

    PyTorch keeps records of the last 64 compilations: in a step with more, only these are checked for
    recompilations.
    """

    def __init__(
        self,
        record_event: Callable[..., None],
        mark_changed: Callable[[CompileCounts], None],
        loaded: Mapping[str, Any] = sys.modules,
    ) -> None:
        self._record_event, self._mark_changed, self._loaded = record_event, mark_changed, loaded
        self._recorded: dict[str, set[tuple[str, ...]]] = {}
        self._newest: Any = None
        self._frames = self._breaks = self._reasons = 0
        self._spent_ns = 0.0
        self._callbacks: Any = None
        dynamo = loaded.get("torch._dynamo.utils")
        if dynamo is not None:
            self._catch_up(dynamo)

    def read(self, steps: int) -> Mapping[str, float]:
        """What was compiled since the last reading; empty if nothing was."""
        dynamo = self._loaded.get("torch._dynamo.utils")
        if dynamo is None:
            return {}
        if self._callbacks is None:
            self._register_callback()
        records = getattr(dynamo, "_compilation_metrics", None)
        if not records or records[-1] is self._newest:
            return {}
        new_records = list(_since(records, self._newest))
        frames, breaks, spent_ns = self._frames, self._breaks, self._spent_ns
        reasons = self._reasons
        self._catch_up(dynamo)
        recompilations = [record for record in new_records if getattr(record, "recompile_reason", None)]
        gave_up = [record for record in new_records if _gave_up(record)]
        self._record_breaks(dynamo.graph_break_reasons[reasons if reasons <= self._reasons else 0 :])
        self._record_compilations("recompile", recompilations)
        self._record_compilations("compile_limit", gave_up)
        return {
            "compile/seconds": _grown(self._spent_ns, spent_ns) * 1e-9 or _seconds(new_records),
            "compile/frames": _grown(self._frames, frames),
            "compile/graph_breaks": _grown(self._breaks, breaks),
            "compile/recompiles": float(len(recompilations)),
            "compile/limit_hits": float(len(gave_up)),
        }

    def close(self) -> None:
        """Removes the callback."""
        if self._callbacks is not None and self._on_compiled in self._callbacks.end_callbacks:
            self._callbacks.remove_end_callback(self._on_compiled)
        self._callbacks = None

    def _register_callback(self) -> None:
        module = self._loaded.get("torch._dynamo.callback")
        if module is not None:  # older versions have no callbacks, and are only read at sampled steps
            self._callbacks = module.callback_handler
            self._callbacks.register_end_callback(self._on_compiled)

    def _on_compiled(self, *_: Any) -> None:
        self._mark_changed(self)

    def _catch_up(self, dynamo: ModuleType) -> None:
        records = getattr(dynamo, "_compilation_metrics", None)
        self._newest = records[-1] if records else None
        counters = dynamo.counters
        # Checked with `in` first: the counters are defaultdicts, and a lookup would add an entry.
        self._frames = counters["frames"]["ok"] if "frames" in counters else 0
        self._breaks = sum(counters["graph_break"].values()) if "graph_break" in counters else 0
        self._reasons = len(dynamo.graph_break_reasons)
        spent = getattr(dynamo, "cumulative_time_spent_ns", {})
        self._spent_ns = sum(spent[name] for name in _WHOLE_COMPILATIONS if name in spent)

    def _record_breaks(self, reasons: Iterable[Any]) -> None:
        for graph_break in reasons:
            frame = graph_break.user_stack[-1] if graph_break.user_stack else None
            place = None if frame is None else f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
            reason = str(graph_break.reason)[:MAX_REASON_LENGTH]
            if self._is_new("graph_break", place or "", reason):
                self._record_event("graph_break", reason=reason, place=place)

    def _record_compilations(self, event: str, compilations: Iterable[Any]) -> None:
        for record in compilations:
            reason = str(getattr(record, "recompile_reason", None) or record.fail_reason)[:MAX_REASON_LENGTH]
            function = getattr(record, "co_name", None)
            if self._is_new(event, function or "", reason):
                self._record_event(
                    event, reason=reason, function=function, place=_place(record), seconds=_seconds([record])
                )

    def _is_new(self, event: str, *what: str) -> bool:
        recorded = self._recorded.setdefault(event, set())
        if what in recorded or len(recorded) >= MAX_REASONS:
            return False
        recorded.add(what)
        return True


def _since(records: Iterable[Any], newest: Any) -> Iterator[Any]:
    """The records after `newest`; all of them if it is no longer kept."""
    kept = list(records)
    last_read = next((index for index, record in enumerate(kept) if record is newest), -1)
    yield from kept[last_read + 1 :]


def _gave_up(record: Any) -> bool:
    reason = getattr(record, "fail_reason", None) or ""
    return any(words in reason for words in _LIMIT_WORDS)


def _seconds(records: Iterable[Any]) -> float:
    total = 0.0
    for record in records:
        took_us = getattr(record, "duration_us", None)
        total += took_us * 1e-6 if took_us else getattr(record, "entire_frame_compile_time_s", None) or 0.0
    return total


def _grown(now: float, before: float) -> float:
    """How much a counter has grown; one that was cleared in the meantime has grown from 0."""
    return float(now - before if now >= before else now)


def _place(record: Any) -> str | None:
    filename = getattr(record, "co_filename", None)
    return None if filename is None else f"{Path(filename).name}:{record.co_firstlineno}"


def unused_compilation(models: Sequence[Any]) -> str:
    """Returns the class of a watched model that was compiled and whose compiled form has never run; else "".

    Asked after some steps. The compiled form of a model is another object, so it is searched for, but only in
    programs that have prepared a compilation and compiled nothing.
    """
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    backends = getattr(dynamo, "cached_backends", {})
    if counters.get("frames") or not any(callable(backend) for backend in backends.values()):
        return ""
    watched = {id(model): type(model).__name__ for model in models}
    for candidate in gc.get_objects():
        if type(candidate) is dynamo.OptimizedModule and id(candidate._orig_mod) in watched:  # type: ignore[union-attr]  # noqa: SLF001 - it has no public name
            return watched[id(candidate._orig_mod)]  # noqa: SLF001 - as above
    return ""
