"""Time of `import stepscope` alone, before any of its names is used."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import own_entry

PAIRS = 15
QUICK_PAIRS = 5


def measure(folder: Path, quick: bool) -> dict[str, float]:
    """Alternate interpreters with and without the import."""
    _interpreter_s("import stepscope", folder)
    pairs = [
        (_interpreter_s("pass", folder), _interpreter_s("import stepscope", folder))
        for _ in range(QUICK_PAIRS if quick else PAIRS)
    ]
    bare_s, with_import_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"import_alone_ms": (with_import_s - bare_s) * 1000}


def _interpreter_s(statement: str, folder: Path) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], cwd=folder, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    own_entry.run(measure)
