"""Skips files whose import alone takes seconds, unless slow tests run; trains tiny models with one thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

IMPORT_FRAMEWORKS = {"test_accelerate.py", "test_transformers.py", "test_transformers_gpu.py"}
"""Files that import frameworks when they are collected; all their tests are slow."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignores these files in a run without slow tests."""
    is_quick = config.getoption("markexpr") == "not slow"
    return True if is_quick and collection_path.name in IMPORT_FRAMEWORKS else None


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost tiny models more than they gain."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
