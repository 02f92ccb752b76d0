"""Installs the trainers into an environment of their own, with stepscope as a user would have it."""

import os
import subprocess
import sys
import venv
from pathlib import Path

from strangers.catalogue import ROOT, SCRIPTS

VERSIONS = Path(__file__).resolve().parent / "versions"

OFFLINE = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "localhost,127.0.0.1",
}
"""Closes the network: models come from configurations and data from NumPy."""

SAME_NUMBERS = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}
"""What makes two runs of one script compute the same bits."""

OLD_CHECKPOINTS = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
"""Old versions of frameworks load their own checkpoints as PyTorch once did by default."""


class NotInstalled(Exception):
    """The packages could not be installed; the message has pip's last lines."""


def prepare(*, oldest: bool) -> Path:
    """Returns the Python of the environment; installs what its list of versions names, once."""
    name = "oldest" if oldest else "newest"
    folder = ROOT / ".strangers-venv" / name
    python = folder / "bin" / "python"
    requirements = VERSIONS / f"{name}.txt"
    stamp = folder / "installed.txt"
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return python
    print(f"installing {requirements.relative_to(ROOT)} into {folder.relative_to(ROOT)}", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True, symlinks=True)
    _install(python, "--editable", str(ROOT))
    _install(python, "--requirement", str(requirements))
    if not oldest:
        _install(python, "--no-deps", "--requirement", str(VERSIONS / "without_dependencies.txt"))
    stamp.write_text(requirements.read_text())
    return python


def _install(python: Path, *what: str) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--constraint", str(ROOT / "constraints.txt"), *what]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        raise NotInstalled("pip install failed:\n" + "\n".join(ended.stderr.splitlines()[-12:]))


def version_of(python: Path, package: str) -> str:
    """The installed version of a package; empty if it is not installed."""
    code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    ended = subprocess.run([str(python), "-c", code, package], capture_output=True, text=True, check=False)
    return ended.stdout.strip()


def variables(folder: Path) -> dict[str, str]:
    """Environment variables of a training: offline, with a home and a store of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STEPSCOPE_")}
    own = {"HOME": str(folder), "STEPSCOPE_DIR": str(folder / "store"), "PYTHONPATH": str(SCRIPTS)}
    return {**kept, **OFFLINE, **SAME_NUMBERS, **OLD_CHECKPOINTS, **own}
