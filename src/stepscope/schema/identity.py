"""The identity of a recording process: run, segment, rank and host."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")


@dataclass(frozen=True)
class Identity:
    """The position of one process in a run."""

    name: str
    project: str
    segment: str
    rank: int
    world_size: int
    host: str
    joined_id: str = ""
    """The id of a run that a launcher has begun for this process; empty for a run of its own."""
    started_ns: int = 0
    """When its first step could begin, in ns since the epoch; 0 for the time its journal is opened."""

    @property
    def run_id(self) -> str:
        """The run's id, the same in every process and every segment of it."""
        return self.joined_id or run_id(self.project, self.name)


def run_id(project: str, name: str) -> str:
    """The id of a run: a readable file name, unique by a digest of project and name."""
    digest = hashlib.sha256(f"{project}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()
    readable = _UNSAFE.sub("-", name).strip("-.")[:40]
    return f"{readable or 'run'}-{digest[:8]}"
