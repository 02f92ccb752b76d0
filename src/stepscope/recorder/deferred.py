"""Reads numbers on a GPU without waiting for it: copies are queued, and read once the GPU has made them."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.errors import ValuesOnDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Callback = Callable[[list[float]], None]
    """Called with the numbers, in the training thread or another one; must not raise."""

SLOTS = 16_384
MAX_PENDING = SLOTS // 4
"""Maximum numbers in flight; a GPU's queue is shorter. The other slots are spare for wrapping around."""

COPIES_PER_EVENT = 16
"""Number of copies that share a CUDA event."""

MAX_UNMARKED_S = 0.2
"""Maximum time until an event is recorded for a copy."""


class _Ring:
    """A ring buffer of pinned host memory for numbers of one type, written by the GPU."""

    def __init__(self, torch: Any, dtype: Any) -> None:
        self._host = torch.empty(SLOTS, dtype=dtype, pin_memory=True)
        self.cells = self._host.unbind()
        self._next = 0

    def room_for(self, count: int) -> int:
        """Reserves `count` consecutive slots; returns the first."""
        first = self._next if self._next + count <= SLOTS else 0
        self._next = first + count
        return first

    def part(self, first: int, count: int) -> Any:
        """The `count` slots from the first."""
        return self._host[first : first + count]


class _PendingCopy(NamedTuple):
    """A queued copy: its slots, and the function to call with the numbers."""

    ring: _Ring
    first: int
    length: int
    callback: Callback


class Deferred:
    """Reads numbers of one device, in the order they were queued.

    A copy to pinned memory is queued immediately, after the work that computes the number and before any that
    changes it. Nothing is converted: the result is what `.item()` would have returned, bit for bit.
    """

    def __init__(self, device: Any) -> None:
        self._torch = torch = sys.modules["torch"]
        self._device = device
        self._rings: dict[Any, _Ring] = {}
        self._unmarked: list[_PendingCopy] = []
        self._marked: deque[tuple[Any, list[_PendingCopy]]] = deque()
        self._pending_numbers = 0
        self._events: list[Any] = []
        self._marked_at = time.monotonic()
        # The public function for the stream creates an object, which takes as long as all the rest together.
        self._raw_stream = torch._C._cuda_getCurrentRawStream  # noqa: SLF001 - as torch's own compiler does
        self._is_capturing = torch._C._cuda_isCurrentStreamCapturing  # noqa: SLF001 - likewise
        self._stream = torch.cuda.current_stream(device)
        self._lock = threading.RLock()

    def put(self, tensors: Sequence[Any], callback: Callback) -> None:
        """Queues tensors of one element and one type; raises RuntimeError for one with several elements."""
        with self._lock:
            ring, first = self._room_for(tensors[0].dtype, len(tensors))
            for index, tensor in enumerate(tensors, first):
                number = tensor.detach() if tensor.requires_grad else tensor
                ring.cells[index].copy_(
                    number if number.dim() == 0 else number.reshape(()), non_blocking=True
                )
            self._add(_PendingCopy(ring, first, len(tensors), callback))

    def put_vector(self, values: Any, callback: Callback) -> None:
        """Queues the elements of one tensor."""
        with self._lock:
            count = values.numel()
            ring, first = self._room_for(values.dtype, count)
            ring.part(first, count).copy_(values.detach().reshape(count), non_blocking=True)
            self._add(_PendingCopy(ring, first, count, callback))

    def drain(self) -> None:
        """Calls back for the copies that have been made; never waits."""
        with self._lock:
            if self._unmarked and time.monotonic() - self._marked_at > MAX_UNMARKED_S:
                self._mark()
            while self._marked and self._marked[0][0].query():
                self._take()

    def flush(self) -> None:
        """Waits for all queued copies and calls back for each; called at the end of a run."""
        with self._lock:
            self._mark()
            while self._marked:
                self._marked[0][0].synchronize()
                self._take()

    def _room_for(self, dtype: Any, count: int) -> tuple[_Ring, int]:
        if self._is_capturing():
            # The copy would become part of the graph, and be repeated with every replay.
            raise ValuesOnDevice("a CUDA graph is being captured; log its numbers after a replay")
        if self._raw_stream(self._device.index) != self._stream.cuda_stream:
            # An event only covers the copies of its own stream.
            self._mark()
            self._stream = self._torch.cuda.current_stream(self._device)
        if count > MAX_PENDING:
            raise ValueError(f"{count} numbers at once; at most {MAX_PENDING} can be queued")
        if self._pending_numbers + count > MAX_PENDING:
            self.flush()
        self._pending_numbers += count
        ring = self._rings.get(dtype)
        if ring is None:
            ring = self._rings[dtype] = _Ring(self._torch, dtype)
        return ring, ring.room_for(count)

    def _add(self, copy: _PendingCopy) -> None:
        self._unmarked.append(copy)
        if len(self._unmarked) >= COPIES_PER_EVENT:
            self._mark()
            self.drain()

    def _mark(self) -> None:
        self._marked_at = time.monotonic()
        if not self._unmarked:
            return
        copies, self._unmarked = self._unmarked, []
        arrived = self._events.pop() if self._events else self._torch.cuda.Event()
        arrived.record(self._stream)
        self._marked.append((arrived, copies))

    def _take(self) -> None:
        arrived, copies = self._marked.popleft()
        self._events.append(arrived)
        for copy in copies:
            self._pending_numbers -= copy.length
            copy.callback(copy.ring.part(copy.first, copy.length).tolist())
