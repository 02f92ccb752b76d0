"""Runs measurements of one peer in child processes and collects what they report."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import environments
from benchmarks.catalogue import BENCH, Peer
from benchmarks.environments import UnavailableError
from benchmarks.processes import Tree

CHILD_LIMIT_S = 180.0
HELPER_LIMIT_S = 15.0

Sample = dict[str, Any]


@dataclass
class Session:
    """One peer, ready to run, and the samples gathered so far by measurement."""

    peer: Peer
    python: Path
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Rows or points chosen for this peer, by measurement."""

    def folder(self, label: str) -> Path:
        """Folder of a run: data, home and log side by side."""
        return BENCH / "work" / self.peer.name / label

    def fresh(self, label: str) -> Path:
        """Empty the folder of a run."""
        folder = self.folder(label)
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "data").mkdir(parents=True)
        (folder / "home").mkdir()
        return folder

    def launch(
        self, measurement: str, folder: Path, *, pass_fds: tuple[int, ...] = (), **parameters: Any
    ) -> Tree:
        """Start a child that runs one measurement on a folder."""
        (folder / "result.json").unlink(missing_ok=True)
        command = [str(self.python), "-m", "benchmarks.child", self.peer.name, measurement]
        command += [str(folder / "data"), str(folder / "result.json"), json.dumps(parameters)]
        environment = environments.variables(self.peer, folder / "data", folder / "home")
        return Tree(command, environment, folder, pass_fds)

    def run(self, measurement: str, folder: Path, **parameters: Any) -> Sample:
        """Run a child to its end and add the CPU time of its tree and the bytes it left."""
        tree = self.launch(measurement, folder, **parameters)
        tree.wait_for_trainer(CHILD_LIMIT_S)
        tree.wait_for_helpers(HELPER_LIMIT_S)
        result = folder / "result.json"
        if tree.returncode != 0 or not result.exists():
            raise UnavailableError(_reason(measurement, tree))
        sample: Sample = json.loads(result.read_text())
        sample["cpu_s"] = tree.cpu_s
        sample["processes"] = tree.processes
        sample["helpers_left"] = tree.helpers_left
        sample["disk_bytes"] = _bytes_below(folder / "data")
        return sample

    def add(self, measurement: str, sample: Sample) -> None:
        """Keep a sample of this round."""
        self.samples.setdefault(measurement, []).append(sample)


def _reason(measurement: str, tree: Tree) -> str:
    if tree.returncode is not None and tree.returncode < 0:
        return f"{measurement}: ended by signal {-tree.returncode} (limit {CHILD_LIMIT_S:.0f} s)"
    return f"{measurement}: {environments.last_line(tree.log.read_text(errors='replace'))}"


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
