"""Finds words and names that are hard to read: `make words` prints each with its place, and fails on any.

It also fails on an exception that nothing uses, so that the list does not outlive the code that it is about.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

PHRASES = [
    re.compile(phrase)
    for phrase in (
        r"\bfor one in\b",
        r"\bMOST_[A-Z]",
        r"\bFEWEST_|\bLEAST_",
        r"\b_told\b|\bTold\b",
        r"\bfound\s*[:=]",
        r"ended without a word",
        r"\bis told\b|\bare told\b",
        r"\bmended\b",
        r"\bdear\b",
        r"\blies in\b|\blie in\b",
        r"step in hand",
        r"is no (port|number|name)",
        r"made anew",
        r"by turns",
        r"for want of",
        r"reckon",
        r"\bfares?\b",
        r"left its course",
        r"not surely",
        r"No sure ",
        r"\blooked for as well\b",
        r"Considered and not found",
        r"News arrive",
        r"Holds in",
        r"Single letters do",
        r"at first\b",
        r"by themselves",
        r"of (any|one) make\b",
        r"\bseldom\b",
    )
]

NAMES = frozenset(
    (
        "anatomy",
        "bursts",
        "census",
        "chain",
        "entrant",
        "insides",
        "last_words",
        "memory_scene",
        "outlets",
        "passage",
        "scene",
        "shelf",
        "site",
        "step_in_hand",
        "summed",
        "telling",
        "told",
        "told_config",
        "unreached",
        "whoami",
    )
)
"""Names that code once had, in lower case and without underscores around them."""

ITERTOOLS, ALLOCATION = "itertools.chain", "an allocation site is a term of PyTorch"
KEYWORD, FIELD = "a keyword of a public class", "a field of the JSON that users read"
CERTIFICATES, EXAMPLE = "a certificate chain is a term of TLS", "an example of what this guard finds"
EXCEPTIONS = {
    ("src/stepscope/alerts/conditions/subjects.py", "chain"): ITERTOOLS,
    ("src/stepscope/recorder/exit/exit_reason.py", "chain"): "a keyword of faulthandler.register",
    ("src/stepscope/steps/memory/oom_snapshot.py", "site"): ALLOCATION,
    ("src/stepscope/model_stats/gradient_monitor.py", "outlets"): KEYWORD,
    ("src/stepscope/model_stats/histograms.py", "outlets"): KEYWORD,
    ("src/stepscope/model_stats/sampled_hooks.py", "outlets"): KEYWORD,
    ("src/stepscope/recorder/watched.py", "outlets"): KEYWORD,
    ("src/stepscope/integrations/lightning/profiler.py", "told"): KEYWORD,
    ("src/stepscope/profiling/window/profiler_window.py", "told"): KEYWORD,
    ("src/stepscope/views/alerts/alert_rows.py", "told"): FIELD,
    ("src/stepscope/cli/checks/machine_settings.py", "found:"): FIELD,
    ("src/stepscope/cli/checks/store_checks.py", "found:"): FIELD,
    ("tests/channels/conftest.py", "chain"): CERTIFICATES,
    ("tests/cli/test_doctor.py", "found ="): FIELD,
    ("tests/gpu/test_watched_models.py", "outlets"): KEYWORD,
    ("tests/guards/test_words.py", "dear"): EXAMPLE,
    ("tests/guards/test_words.py", "told"): EXAMPLE,
    ("tests/journal/", "chain"): ITERTOOLS,
    ("tests/model_stats/", "chain"): ITERTOOLS,
    ("tests/model_stats/", "outlets"): KEYWORD,
    ("tests/profiling/test_window.py", "told"): KEYWORD,
    ("tests/views/alerts/test_alert_list.py", "told"): FIELD,
}
"""Words that may stay in a file, or in the files of a folder, with the reason."""

FOLDERS = {
    "src/stepscope": (".py",),
    "ui/src": (".ts", ".svelte", ".css"),
    "ui/tests": (".ts",),
    "docs": (".md",),
    "tests": (".py", ".md"),
    "benchmarks": (".py",),
    "examples": (".py", ".md"),
    "zoo": (".py",),
    "strangers": (".py",),
}
"""Folders that are read, and the endings of their texts.

Golden files, recordings and printed results have other endings: what they hold was decided elsewhere.
"""

PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages that are read. The change log is not: its tables give the words of earlier versions."""


class Hit(NamedTuple):
    """A word that is hard to read, and its place."""

    path: str
    line: int
    word: str

    def is_covered_by(self, place: str, word: str) -> bool:
        """Whether an exception for a word in a file, or in a folder that ends in a slash, allows this one."""
        is_there = self.path.startswith(place) if place.endswith("/") else self.path == place
        return is_there and self.word.strip("_") == word


def texts() -> Iterator[tuple[str, str]]:
    """Every file that people read, by its path within the project; not this one, which lists the words."""
    for folder, endings in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in endings and path != Path(__file__):
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for name in PAGES:
        yield name, (ROOT / name).read_text(encoding="utf-8")


def hits(path: str, text: str) -> Iterator[Hit]:
    """The words of a file that are hard to read."""
    for phrase in PHRASES:
        for match in phrase.finditer(text):
            yield Hit(path, text.count("\n", 0, match.start()) + 1, match[0])
    if path.endswith(".py"):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and token.string.strip("_").lower() in NAMES:
                yield Hit(path, token.start[0], token.string)


def faults(every_hit: Sequence[Hit], exceptions: Collection[tuple[str, str]]) -> list[str]:
    """A line for each word without an exception, and for each exception without a word."""
    unused, wrong = dict.fromkeys(exceptions), []
    for hit in every_hit:
        reasons = [exception for exception in exceptions if hit.is_covered_by(*exception)]
        for exception in reasons:
            unused.pop(exception, None)
        if not reasons:
            wrong.append(f"{hit.path}:{hit.line}: {hit.word}")
    return wrong + [f"{place}: the exception for {word!r} is not used" for place, word in unused]


def main() -> int:
    """Prints what is wrong; 1 where anything is."""
    wrong = faults([hit for path, text in texts() for hit in hits(path, text)], EXCEPTIONS)
    for line in wrong:
        print(line)
    print(f"{len(wrong)} words to replace, {len(EXCEPTIONS)} exceptions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
