"""Which tests `make test` leaves to CI and `make test-all`: those that took long when last measured.

`tests/long_tests.txt` has their names. To measure again, on a machine that does nothing else:

    make test ARGS="-m 'not slow' --durations=0 --durations-min=0.01" | python -m tests.long_tests
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")

MAX_CASE_S, MAX_TEST_S = 0.7, 3.0
"""Seconds of one case, and of all cases of a test together, that `make test` has time for."""

_MEASURED = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(tests/\S+?::[^[\s]+)(\[.*)?$", re.MULTILINE)


def listed() -> frozenset[str]:
    """The names of the long tests: path, two colons, function."""
    return frozenset(LIST.read_text().split())


def long_tests(output: str) -> list[str]:
    """The names of the tests that took long, by what pytest printed about durations."""
    cases: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for seconds, test, case in _MEASURED.findall(output):
        cases[test][case] += float(seconds)
    return sorted(
        test
        for test, took in cases.items()
        if max(took.values()) > MAX_CASE_S or sum(took.values()) > MAX_TEST_S
    )


if __name__ == "__main__":
    LIST.write_text("".join(f"{test}\n" for test in long_tests(sys.stdin.read())))
