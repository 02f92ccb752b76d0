"""The version of this package, for those who may not import the whole of it."""

from __future__ import annotations

__version__ = "0.1.0"
