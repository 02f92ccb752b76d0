"""Gives each peer a virtual environment of its own."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.catalogue import BENCH, OFFLINE, ROOT, SUBJECT, Peer

INSTALL_LIMIT_S = 1800

LIST_VERSIONS = """
import json, sys
from importlib.metadata import version
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


class UnavailableError(Exception):
    """A peer could not be installed or run; the message is the reason printed in the table."""


def prepare(peer: Peer) -> Path:
    """Return the peer's Python, installing the peer on first use."""
    if not peer.packages:
        return Path(sys.executable)
    python = BENCH / peer.name / "bin" / "python"
    stamp = BENCH / peer.name / "installed.json"
    requested = json.dumps(sorted(peer.packages))
    if stamp.exists() and stamp.read_text() == requested:
        return python
    print(f"installing {' '.join(peer.packages)} into {python.parent.parent}", file=sys.stderr)
    venv.create(BENCH / peer.name, with_pip=True, clear=True, symlinks=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    ended = subprocess.run(
        ["nice", *install, *constraints, *peer.packages],
        capture_output=True,
        text=True,
        timeout=INSTALL_LIMIT_S,
        check=False,
    )
    if ended.returncode != 0:
        raise UnavailableError(f"pip install failed: {last_line(ended.stderr)}")
    stamp.write_text(requested)
    return python


def versions(peer: Peer, python: Path) -> dict[str, str]:
    """Versions of the packages the peer needs; empty where they are not installed."""
    packages = peer.packages or ((SUBJECT,) if peer.name == SUBJECT else ())
    command = [str(python), "-c", LIST_VERSIONS, *packages]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    version_of: dict[str, str] = json.loads(ended.stdout) if ended.returncode == 0 else {}
    return version_of


def variables(peer: Peer, folder: Path, home: Path) -> dict[str, str]:
    """Environment variables of a run: offline, with a home of its own."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    own = {name: value.format(folder=folder) for name, value in peer.environment.items()}
    return {**os.environ, **OFFLINE, "HOME": str(home), "PYTHONPATH": path, **own}


def last_line(text: str) -> str:
    """Last line that says something, shortened for a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "no message"
