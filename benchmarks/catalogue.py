"""The peers: what each installs, imports and needs in its environment."""

from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / ".bench"

SUBJECT = "stepscope"
BARE = "bare"

OFFLINE = {
    "DO_NOT_TRACK": "1",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "localhost,127.0.0.1",
    "PYTHONUNBUFFERED": "1",
}
"""Closes the network to every peer: a dead proxy for whatever ignores its own switch."""


@dataclass(frozen=True)
class Peer:
    """One way to log metrics."""

    name: str
    """Also the name of the adapter in `peers/`."""

    imports: str
    """What a user's script imports first; its time is measured."""

    packages: tuple[str, ...] = ()
    """What pip installs; a peer without packages runs in this project's environment."""

    environment: dict[str, str] = field(default_factory=dict)
    """Variables that switch off telemetry and network; `{folder}` is the data folder."""


PEERS = {
    peer.name: peer
    for peer in (
        Peer(SUBJECT, "from stepscope import TrainingMonitor"),
        Peer("json_lines", "import json"),
        Peer("sqlite_rows", "import sqlite3"),
        Peer(
            "trackio",
            "import trackio",
            packages=("trackio",),
            environment={
                "TRACKIO_DIR": "{folder}",
                "HF_HUB_OFFLINE": "1",
                "HF_HUB_DISABLE_TELEMETRY": "1",
                "GRADIO_ANALYTICS_ENABLED": "False",
            },
        ),
        Peer(
            "wandb",
            "import wandb",
            packages=("wandb",),
            environment={
                "WANDB_MODE": "offline",
                "WANDB_SILENT": "true",
                "WANDB_ERROR_REPORTING": "false",
            },
        ),
        Peer("tensorboard", "import tensorboardX", packages=("tensorboardX", "tensorboard")),
        Peer("aim", "import aim", packages=("aim",)),
        Peer(
            "mlflow",
            "import mlflow",
            packages=("mlflow",),
            environment={"MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet"},
        ),
    )
}

BARE_PEER = Peer(BARE, "import sys")
"""The loop without logging, run like a peer so that its cost can be subtracted."""
