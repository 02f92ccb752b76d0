"""Reads numbers that lie on a GPU without waiting for it: copied aside now, read when they have arrived."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SLOTS = 16_384
MOST_ON_THEIR_WAY = SLOTS // 4
"""A GPU cannot fall so far behind, its own queue is shorter. The rest is room to begin anew at the front."""

TOGETHER = 16
"""So many rows are sent at once: a copy to the host costs more than one beside it on the GPU."""

SEND_AFTER_S = 0.2
"""A row waits no longer than this for others to be sent with."""


@dataclass
class _Row:
    """A row of which some values are on their way."""

    step: int
    values: dict[Any, Any]
    keys: Sequence[Any]
    """Those that are awaited, in the order of their places."""
    first: int


class Deferred:
    """Rows wait in the order they came; each is recorded with its own step, whole, when its values are there.

    A number is put aside on the GPU at once, because the loop may change it; many are then sent together into
    memory the GPU can write by itself. They travel as float64: what is read is what `.item()` would have
    given, bit for bit.
    """

    def __init__(self, device: Any, record: Callable[[Mapping[Any, Any], int], None]) -> None:
        self._torch = torch = sys.modules["torch"]
        self._record = record
        self._device = device
        self._aside = torch.empty(SLOTS, dtype=torch.float64, device=device)
        self._cells = self._aside.unbind()
        self._host = torch.empty(SLOTS, dtype=torch.float64, pin_memory=True)
        self._unsent: list[_Row] = []
        self._sent: deque[tuple[Any, list[_Row]]] = deque()
        self._next = 0
        self._on_their_way = 0
        self._events: list[Any] = []
        self._sent_at = time.monotonic()
        self._lock = threading.RLock()

    def put(self, metrics: Mapping[Any, Any], step: int) -> None:
        """Takes a row in which some values lie on a GPU; raises RuntimeError for one of several elements."""
        with self._lock:
            values = dict(metrics)
            keys = [key for key, value in values.items() if getattr(value, "is_cuda", False) is True]
            first = self._room_for(len(keys))
            for place, key in enumerate(keys, first):
                tensor = values[key].detach()
                self._cells[place].copy_(tensor if tensor.dim() == 0 else tensor.reshape(()))
            self._keep(_Row(step, values, keys, first))

    def put_vector(self, keys: Sequence[str], values: Any, step: int) -> None:
        """Takes a row whose values are the elements of one tensor."""
        with self._lock:
            first = self._room_for(len(keys))
            self._aside[first : first + len(keys)].copy_(values.detach().reshape(len(keys)))
            self._keep(_Row(step, {}, keys, first))

    def drain(self) -> None:
        """Records what has arrived; never waits."""
        with self._lock:
            if self._unsent and time.monotonic() - self._sent_at > SEND_AFTER_S:
                self._send()
            while self._sent and self._sent[0][0].query():
                self._take()

    def flush(self) -> None:
        """Waits for everything on its way and records it: the end of a run."""
        with self._lock:
            self._send()
            while self._sent:
                self._sent[0][0].synchronize()
                self._take()

    def _room_for(self, count: int) -> int:
        if count > MOST_ON_THEIR_WAY:
            raise ValueError(f"{count} numbers at once; at most {MOST_ON_THEIR_WAY} can be on their way")
        if self._on_their_way + count > MOST_ON_THEIR_WAY:
            self.flush()
        if self._next + count > SLOTS:
            self._send()  # what is sent together lies together
            self._next = 0
        first, self._next = self._next, self._next + count
        self._on_their_way += count
        return first

    def _keep(self, row: _Row) -> None:
        self._unsent.append(row)
        if len(self._unsent) >= TOGETHER:
            self._send()
        self.drain()

    def _send(self) -> None:
        self._sent_at = time.monotonic()
        if not self._unsent:
            return
        rows, self._unsent = self._unsent, []
        low, high = rows[0].first, rows[-1].first + len(rows[-1].keys)
        self._host[low:high].copy_(self._aside[low:high], non_blocking=True)
        arrived = self._events.pop() if self._events else self._torch.cuda.Event()
        arrived.record(self._torch.cuda.current_stream(self._device))
        self._sent.append((arrived, rows))

    def _take(self) -> None:
        arrived, rows = self._sent.popleft()
        self._events.append(arrived)
        low = rows[0].first
        numbers = self._host[low : rows[-1].first + len(rows[-1].keys)].tolist()
        for row in rows:
            begin = row.first - low
            row.values.update(zip(row.keys, numbers[begin : begin + len(row.keys)], strict=True))
            self._on_their_way -= len(row.keys)
            self._record(row.values, row.step)
