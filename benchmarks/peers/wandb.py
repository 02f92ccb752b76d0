"""Logs through wandb in offline mode."""

import json
from collections.abc import Iterator
from pathlib import Path

import wandb
from wandb.proto import wandb_internal_pb2

FILE_HEADER_BYTES = 7
BLOCK_BYTES = 32 * 1024
RECORD_HEADER_BYTES = 7
FULL, FIRST, LAST = 1, 2, 4


class Writer:
    """An offline run with the default system sampling."""

    def __init__(self, folder: str) -> None:
        wandb.init(project="bench", mode="offline", dir=folder)

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Log the whole row in one call."""
        wandb.log(metrics, step=step)

    def finish(self) -> None:
        """Wait until wandb-core has written the run."""
        wandb.finish()


def read_series(folder: str, key: str) -> tuple[list[int], list[float]]:
    """Decode the run's file: wandb has no reader for a run that was never uploaded."""
    steps: list[int] = []
    values: list[float] = []
    record = wandb_internal_pb2.Record()
    for path in Path(folder).glob("wandb/offline-run-*/*.wandb"):
        for message in _messages(path.read_bytes()):
            record.ParseFromString(message)
            if not record.HasField("history"):
                continue
            for item in record.history.item:
                if item.key == key or list(item.nested_key) == [key]:
                    steps.append(record.history.step.num)
                    values.append(json.loads(item.value_json))
    return steps, values


def _messages(log: bytes) -> Iterator[bytes]:
    """Follow LevelDB's log format, in which wandb keeps its records."""
    parts: list[bytes] = []
    at = FILE_HEADER_BYTES
    while at + RECORD_HEADER_BYTES <= len(log):
        left_in_block = BLOCK_BYTES - at % BLOCK_BYTES
        if left_in_block < RECORD_HEADER_BYTES:
            at += left_in_block
            continue
        length = int.from_bytes(log[at + 4 : at + 6], "little")
        kind = log[at + 6]
        start = at + RECORD_HEADER_BYTES
        at = start + length
        if kind == 0 or at > len(log):
            return
        if kind in (FULL, FIRST):
            parts = []
        parts.append(log[start:at])
        if kind in (FULL, LAST):
            yield b"".join(parts)
