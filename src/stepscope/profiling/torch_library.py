"""Hands out torch, or says what to type where it is missing."""

from __future__ import annotations

from typing import Any

from stepscope.errors import MissingExtra


def torch_for(needed_for: str) -> Any:
    """The torch module; raises MissingExtra with the command to type when it is not installed.

    Its type is left open: most of what profiling calls there has no annotations.
    """
    try:
        import torch  # lazy: it takes seconds to load, and is an extra
    except ImportError as error:
        raise MissingExtra("torch", needed_for) from error
    return torch
