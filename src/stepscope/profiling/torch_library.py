"""Imports torch, or says how to install it."""

from __future__ import annotations

from typing import Any

from stepscope.errors import MissingExtra


def torch_for(needed_for: str) -> Any:
    """The torch module; raises MissingExtra with the install command if it is not installed.

    Typed as Any: most of what profiling calls there has no annotations.
    """
    try:
        import torch  # lazy: it takes seconds to load, and is an extra
    except ImportError as error:
        raise MissingExtra("torch", needed_for) from error
    return torch
