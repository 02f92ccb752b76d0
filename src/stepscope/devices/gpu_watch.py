"""Reads the GPUs of a host: finds them, and detects which are lost and which come back."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from stepscope.devices.find_gpus import GpusFound, find_gpus
from stepscope.devices.gpu import GpuLost
from stepscope.devices.interval import Interval
from stepscope.schema.sample import DeviceFacts, Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepscope.devices.gpu import Gpu, GpuFacts, GpuReading

RETRY_S = 60.0
"""How often lost GPUs are searched for."""


class GpuWatch:
    """All GPUs of the host, including those that are lost and come back."""

    def __init__(
        self,
        thorough_every_s: float,
        find: Callable[[], GpusFound] = find_gpus,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._thorough_due = Interval(thorough_every_s, now)
        self._retry_due = Interval(RETRY_S, now)
        self._found = GpusFound((), ())
        self._described: set[str] = set()
        self._reported: set[Notice] = set()
        self._lost: set[str] = set()
        self._losses: dict[str, int] = {}

    def read(self) -> Iterator[tuple[GpuFacts, GpuReading] | DeviceFacts | Notice]:
        """The reading of each GPU that answers, and facts and notices about the GPUs."""
        lost = [gpu for gpu in self._found.gpus if gpu.facts.uuid in self._lost]
        retries_lost = bool(lost or not self._found.gpus) and self._retry_due.is_due()
        if retries_lost and len(lost) == len(self._found.gpus):
            # The library finds new GPUs only after all GPUs are closed.
            yield from self._find_all()
        thorough = self._thorough_due.is_due()
        for gpu in self._found.gpus:
            if retries_lost or gpu.facts.uuid not in self._lost:
                yield from self._read_gpu(gpu, thorough=thorough)

    def close(self) -> None:
        """Closes the GPUs."""
        self._found.close()
        self._found = GpusFound((), ())

    def _find_all(self) -> Iterator[Notice]:
        """Searches for GPUs again, and reports once why there are none or why one cannot be read."""
        self._found.close()
        self._found = self._find()
        for notice in self._found.notices:
            if notice not in self._reported:
                self._reported.add(notice)
                yield notice

    def _read_gpu(
        self, gpu: Gpu, *, thorough: bool
    ) -> Iterator[tuple[GpuFacts, GpuReading] | DeviceFacts | Notice]:
        """Reads one GPU; yields its facts when it first answers: only then its missing figures are known."""
        facts, is_new = gpu.facts, gpu.facts.uuid not in self._described
        try:
            reading = gpu.read(thorough=thorough or is_new)
        except GpuLost as reason:
            if facts.uuid not in self._lost:
                yield self._note_loss(gpu, reason)
            return
        if facts.uuid in self._lost:
            self._lost.remove(facts.uuid)
            yield Notice(
                f"gpu/{facts.uuid}/back/{self._losses[facts.uuid]}", f"{_name(facts)} answers again."
            )
        if is_new:
            self._described.add(facts.uuid)
            yield _described(gpu)
        yield facts, reading

    def _note_loss(self, gpu: Gpu, reason: GpuLost) -> Notice:
        facts = gpu.facts
        self._lost.add(facts.uuid)
        self._losses[facts.uuid] = self._losses.get(facts.uuid, 0) + 1
        return Notice(
            f"gpu/{facts.uuid}/lost/{self._losses[facts.uuid]}",
            f"{_name(facts)} no longer answers: {reason}. See why with: {gpu.diagnose_command}",
        )


def _described(gpu: Gpu) -> DeviceFacts:
    fields = {name: value for name, value in asdict(gpu.facts).items() if value is not None}
    return DeviceFacts(gpu.facts.uuid, fields | {"absent": sorted(gpu.absent())})


def _name(facts: GpuFacts) -> str:
    part = "" if facts.gpu_instance is None else f", slice {facts.gpu_instance}"
    return f"GPU {facts.index}{part} ({facts.name}, {facts.uuid})"
