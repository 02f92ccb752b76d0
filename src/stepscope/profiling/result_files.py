"""Writes traces and summaries atomically: each file appears whole or not at all."""

from __future__ import annotations

import gzip
import json
import shutil
from typing import TYPE_CHECKING, Any

from stepscope.filesystem import atomic_file, temporary_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COMPRESSION = 3
"""At most a third larger than the best compression, in a tenth of the time, which the training waits for."""
_BLOCK_BYTES = 1 << 20


def write_compressed(path: Path, write_plain: Callable[[Path], None]) -> None:
    """Calls `write_plain` with a temporary file and compresses the result; raises OSError on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as compressed, temporary_file(path) as plain:
        write_plain(plain)
        with plain.open("rb") as source, gzip.open(compressed, "wb", compresslevel=COMPRESSION) as target:
            shutil.copyfileobj(source, target, _BLOCK_BYTES)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Writes a dictionary as a JSON file; raises OSError on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n")
