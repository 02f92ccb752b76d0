"""Finds words and names that are hard to read: `make words` prints each with its place, and fails on any."""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

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
EXCEPTIONS = {
    ("alerts/conditions/subjects.py", "chain"): ITERTOOLS,
    ("recorder/exit/exit_reason.py", "chain"): "a keyword of faulthandler.register",
    ("steps/memory/oom_snapshot.py", "site"): ALLOCATION,
    ("model_stats/gradient_monitor.py", "outlets"): KEYWORD,
    ("model_stats/histograms.py", "outlets"): KEYWORD,
    ("model_stats/sampled_hooks.py", "outlets"): KEYWORD,
    ("recorder/watched.py", "outlets"): KEYWORD,
    ("integrations/lightning/profiler.py", "told"): KEYWORD,
    ("profiling/window/profiler_window.py", "told"): KEYWORD,
    ("views/alerts/alert_rows.py", "told"): FIELD,
    ("web/api/shapes_alerts.py", "told"): FIELD,
    ("cli/checks/machine_settings.py", "found:"): FIELD,
    ("cli/checks/store_checks.py", "found:"): FIELD,
}
"""Words that may stay in a file of the package, with the reason."""


def texts() -> Iterator[tuple[str, str]]:
    """Every file that people read, by its path within the project."""
    for folder, endings in (
        ("src/stepscope", (".py",)),
        ("ui/src", (".ts", ".svelte", ".css")),
        ("docs", (".md",)),
    ):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in endings:
                yield str(path.relative_to(ROOT)), path.read_text()
    yield "README.md", (ROOT / "README.md").read_text()


def hits() -> Iterator[tuple[str, int, str]]:
    """Where a word is that should not be: file, line, the word."""
    for path, text in texts():
        for phrase in PHRASES:
            for match in phrase.finditer(text):
                yield path, text.count("\n", 0, match.start()) + 1, match[0]
        if path.endswith(".py"):
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.NAME and token.string.strip("_").lower() in NAMES:
                    yield path, token.start[0], token.string


def main() -> int:
    """Prints what has no reason to be there; 1 where there is any."""
    wrong = [
        (path, line, word)
        for path, line, word in hits()
        if (path.removeprefix("src/stepscope/"), word.strip("_")) not in EXCEPTIONS
    ]
    for path, line, word in wrong:
        print(f"{path}:{line}: {word}")
    print(f"{len(wrong)} words to replace, {len(EXCEPTIONS)} exceptions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
