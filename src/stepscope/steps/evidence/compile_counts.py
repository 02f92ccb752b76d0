"""Notices what PyTorch's compiler does in a step: frames, recompilations, graph breaks and their reasons."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType

MAX_REASONS = 20
"""Different reasons that are told of each kind; what goes on after that is still counted."""

LONGEST_REASON = 400

_WHOLE_COMPILATIONS = ("entire_frame_compile", "entire_backward_compile")
_LIMIT_WORDS = ("recompile limit", "recompile_limit", "cache_size_limit")
"""How versions of PyTorch say that they give up; there is no type for it."""


class CompileCounts:
    """Looks at Dynamo's own accounts; where it is not loaded, or does nothing, there are no figures.

    Once it is loaded it tells of every compilation, so that each is put down to its own step.

    PyTorch keeps records of the last 64 compilations: of a step with more, recompilations are counted among
    these alone.
    """

    def __init__(
        self,
        note: Callable[..., None],
        notice: Callable[[CompileCounts], None],
        loaded: Mapping[str, Any] = sys.modules,
    ) -> None:
        self._note, self._notice, self._loaded = note, notice, loaded
        self._told: dict[str, set[tuple[str, ...]]] = {}
        self._newest: Any = None
        self._frames = self._breaks = self._reasons = 0
        self._spent_ns = 0.0
        self._callbacks: Any = None
        dynamo = loaded.get("torch._dynamo.utils")
        if dynamo is not None:
            self._catch_up(dynamo)

    def look(self, steps: int) -> Mapping[str, float]:
        """What was compiled since the last look; nothing when nothing was."""
        dynamo = self._loaded.get("torch._dynamo.utils")
        if dynamo is None:
            return {}
        if self._callbacks is None:
            self._listen()
        records = getattr(dynamo, "_compilation_metrics", None)
        if not records or records[-1] is self._newest:
            return {}
        fresh = list(_since(records, self._newest))
        frames, breaks, spent_ns = self._frames, self._breaks, self._spent_ns
        reasons = self._reasons
        self._catch_up(dynamo)
        again = [one for one in fresh if getattr(one, "recompile_reason", None)]
        gave_up = [one for one in fresh if _gave_up(one)]
        self._tell_breaks(dynamo.graph_break_reasons[reasons if reasons <= self._reasons else 0 :])
        self._tell_compilations("recompile", again)
        self._tell_compilations("compile_limit", gave_up)
        return {
            "compile/seconds": _grown(self._spent_ns, spent_ns) * 1e-9 or _seconds(fresh),
            "compile/frames": _grown(self._frames, frames),
            "compile/graph_breaks": _grown(self._breaks, breaks),
            "compile/recompiles": float(len(again)),
            "compile/limit_hits": float(len(gave_up)),
        }

    def close(self) -> None:
        """Stops listening."""
        if self._callbacks is not None and self._on_compiled in self._callbacks.end_callbacks:
            self._callbacks.remove_end_callback(self._on_compiled)
        self._callbacks = None

    def _listen(self) -> None:
        module = self._loaded.get("torch._dynamo.callback")
        if module is not None:  # older versions tell nobody, and are looked at now and then alone
            self._callbacks = module.callback_handler
            self._callbacks.register_end_callback(self._on_compiled)

    def _on_compiled(self, *_: Any) -> None:
        self._notice(self)

    def _catch_up(self, dynamo: ModuleType) -> None:
        records = getattr(dynamo, "_compilation_metrics", None)
        self._newest = records[-1] if records else None
        counters = dynamo.counters
        # Looked up with care: the counters make an entry of whatever they are asked for.
        self._frames = counters["frames"]["ok"] if "frames" in counters else 0
        self._breaks = sum(counters["graph_break"].values()) if "graph_break" in counters else 0
        self._reasons = len(dynamo.graph_break_reasons)
        spent = getattr(dynamo, "cumulative_time_spent_ns", {})
        self._spent_ns = sum(spent[name] for name in _WHOLE_COMPILATIONS if name in spent)

    def _tell_breaks(self, reasons: Iterable[Any]) -> None:
        for one in reasons:
            frame = one.user_stack[-1] if one.user_stack else None
            place = None if frame is None else f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
            reason = str(one.reason)[:LONGEST_REASON]
            if self._is_news("graph_break", place or "", reason):
                self._note("graph_break", reason=reason, place=place)

    def _tell_compilations(self, event: str, compilations: Iterable[Any]) -> None:
        for one in compilations:
            reason = str(getattr(one, "recompile_reason", None) or one.fail_reason)[:LONGEST_REASON]
            function = getattr(one, "co_name", None)
            if self._is_news(event, function or "", reason):
                self._note(
                    event, reason=reason, function=function, place=_place(one), seconds=_seconds([one])
                )

    def _is_news(self, event: str, *what: str) -> bool:
        told = self._told.setdefault(event, set())
        if what in told or len(told) >= MAX_REASONS:
            return False
        told.add(what)
        return True


def _since(records: Iterable[Any], newest: Any) -> Iterator[Any]:
    """The records after one that was seen; all of them when it is no longer there."""
    every = list(records)
    known = next((place for place, one in enumerate(every) if one is newest), -1)
    yield from every[known + 1 :]


def _gave_up(record: Any) -> bool:
    reason = getattr(record, "fail_reason", None) or ""
    return any(words in reason for words in _LIMIT_WORDS)


def _seconds(records: Iterable[Any]) -> float:
    total = 0.0
    for one in records:
        took_us = getattr(one, "duration_us", None)
        total += took_us * 1e-6 if took_us else getattr(one, "entire_frame_compile_time_s", None) or 0.0
    return total


def _grown(now: float, before: float) -> float:
    """How much a counter has grown; one that somebody has cleared meanwhile starts from nothing."""
    return float(now - before if now >= before else now)


def _place(record: Any) -> str | None:
    filename = getattr(record, "co_filename", None)
    return None if filename is None else f"{Path(filename).name}:{record.co_firstlineno}"
