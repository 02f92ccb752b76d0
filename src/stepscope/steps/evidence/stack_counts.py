"""Counts stack samples by line, and describes them in an event."""

from __future__ import annotations

import linecache
import os.path
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.steps.evidence.stack_frames import StackSample

MAX_LINES = 20
"""Lines in an event."""

MAX_COUNTED = 1000
"""Different lines that are counted; further ones are only counted together."""

MAX_TEXT = 100

_SOURCES = (
    ("sync", re.compile(r"\.(item|cpu|tolist|numpy)\(\)")),
    ("sleep", re.compile(r"\bsleep\(")),
    (
        "logging",
        re.compile(r"\b(print|json\.dumps?)\(|\.(write|writelines|writerow|writerows|to_csv|flush)\("),
    ),
)
"""What a line of source is for that calls a function which is not written in Python, and so has no frame."""


class StackCounts:
    """How often each line was found running."""

    def __init__(self) -> None:
        self.samples = 0
        self._lines: Counter[StackSample] = Counter()

    def add(self, sample: StackSample) -> None:
        """Counts a sample."""
        self.samples += 1
        if sample in self._lines or len(self._lines) < MAX_COUNTED:
            self._lines[sample] += 1

    def fields(self, *, has_gpu: bool = False) -> dict[str, Any]:
        """The samples by phase, and the lines with most of them; reading a value waits only for a GPU."""
        phases: Counter[str] = Counter()
        for sample, count in self._lines.items():
            phases[sample.phase] += count
        lines = [
            _described(sample, count, has_gpu=has_gpu) for sample, count in self._lines.most_common(MAX_LINES)
        ]
        more = self.samples - sum(line["samples"] for line in lines)
        return {"samples": self.samples, "phases": dict(phases), "lines": lines, "more": more}


def _described(sample: StackSample, count: int, *, has_gpu: bool) -> dict[str, Any]:
    name = _short(os.path.basename(sample.file))  # noqa: PTH119 - it need not be a path
    place = f"{name}:{sample.line}" if sample.line else name
    function = "" if sample.function.startswith("<module") else f" in {_short(sample.function)}"
    return {
        "phase": sample.phase,
        "place": f"{place}{function}",
        "call": _short(sample.call),
        "kind": sample.kind or _kind_of_source(sample, has_gpu=has_gpu),
        "samples": count,
    }


def _kind_of_source(sample: StackSample, *, has_gpu: bool) -> str:
    """What the line itself calls, if it called no function that is written in Python."""
    if sample.call:
        return ""
    source = linecache.getline(sample.file, sample.line)
    sources = _SOURCES if has_gpu else _SOURCES[1:]
    return next((kind for kind, pattern in sources if pattern.search(source)), "")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
