"""Whether what is written in C can be compiled on this machine."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path


def can_compile() -> bool:
    """Whether there are a compiler and the headers of this Python."""
    return shutil.which("cc") is not None and Path(sysconfig.get_path("include"), "Python.h").is_file()
