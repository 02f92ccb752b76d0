"""Reads numbers that lie on a GPU without waiting for it: it sends them when it gets there."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.errors import ValuesOnDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Arrived = Callable[[list[float]], None]
    """Takes the numbers, in the training thread or beside it; it must not raise."""

SLOTS = 16_384
MAX_ON_THEIR_WAY = SLOTS // 4
"""A GPU cannot fall so far behind, its own queue is shorter. The rest is room to begin anew at the front."""

TOGETHER = 16
"""So many times numbers are sent before it is marked, by an event, how far the GPU has to come."""

MARK_AFTER_S = 0.2
"""Nothing waits longer than this for the mark."""


class _Ring:
    """Memory of the host for numbers of one type, which a GPU writes from front to end and from the front."""

    def __init__(self, torch: Any, dtype: Any) -> None:
        self._host = torch.empty(SLOTS, dtype=dtype, pin_memory=True)
        self.cells = self._host.unbind()
        self._next = 0

    def room_for(self, several: int) -> int:
        """The first of so many places in a row."""
        first = self._next if self._next + several <= SLOTS else 0
        self._next = first + several
        return first

    def part(self, first: int, several: int) -> Any:
        """So many places from the first."""
        return self._host[first : first + several]


class _Awaited(NamedTuple):
    """Numbers on their way, where they will lie, and who wants them."""

    ring: _Ring
    first: int
    several: int
    then: Arrived


class Deferred:
    """Numbers of one device; they arrive in the order they were put in.

    A copy of each is queued at once, behind the work that makes the number and before any that changes it,
    into memory that the GPU can write by itself. Nothing is converted on the way: what is read is what
    `.item()` would have given, bit for bit.
    """

    def __init__(self, device: Any) -> None:
        self._torch = torch = sys.modules["torch"]
        self._device = device
        self._rings: dict[Any, _Ring] = {}
        self._unmarked: list[_Awaited] = []
        self._marked: deque[tuple[Any, list[_Awaited]]] = deque()
        self._on_their_way = 0
        self._events: list[Any] = []
        self._marked_at = time.monotonic()
        # The public way to ask for the stream makes an object, which takes as long as all the rest together.
        self._raw_stream = torch._C._cuda_getCurrentRawStream  # noqa: SLF001 - as torch's own compiler does
        self._is_capturing = torch._C._cuda_isCurrentStreamCapturing  # noqa: SLF001 - likewise
        self._stream = torch.cuda.current_stream(device)
        self._lock = threading.RLock()

    def put(self, tensors: Sequence[Any], then: Arrived) -> None:
        """Takes tensors of one element and of one type; raises RuntimeError for one of several elements."""
        with self._lock:
            ring, first = self._room_for(tensors[0].dtype, len(tensors))
            for place, tensor in enumerate(tensors, first):
                number = tensor.detach() if tensor.requires_grad else tensor
                ring.cells[place].copy_(
                    number if number.dim() == 0 else number.reshape(()), non_blocking=True
                )
            self._keep(_Awaited(ring, first, len(tensors), then))

    def put_vector(self, values: Any, then: Arrived) -> None:
        """Takes the elements of one tensor."""
        with self._lock:
            several = values.numel()
            ring, first = self._room_for(values.dtype, several)
            ring.part(first, several).copy_(values.detach().reshape(several), non_blocking=True)
            self._keep(_Awaited(ring, first, several, then))

    def drain(self) -> None:
        """Hands over what has arrived; never waits."""
        with self._lock:
            if self._unmarked and time.monotonic() - self._marked_at > MARK_AFTER_S:
                self._mark()
            while self._marked and self._marked[0][0].query():
                self._take()

    def flush(self) -> None:
        """Waits for everything on its way and hands it over: the end of a run."""
        with self._lock:
            self._mark()
            while self._marked:
                self._marked[0][0].synchronize()
                self._take()

    def _room_for(self, dtype: Any, several: int) -> tuple[_Ring, int]:
        if self._is_capturing():
            # The copy would become part of the graph, and write here again with every replay.
            raise ValuesOnDevice("a CUDA graph is being captured; log its numbers after a replay")
        if self._raw_stream(self._device.index) != self._stream.cuda_stream:
            # What was queued in one stream is marked in it: others do not wait for it.
            self._mark()
            self._stream = self._torch.cuda.current_stream(self._device)
        if several > MAX_ON_THEIR_WAY:
            raise ValueError(f"{several} numbers at once; at most {MAX_ON_THEIR_WAY} can be on their way")
        if self._on_their_way + several > MAX_ON_THEIR_WAY:
            self.flush()
        self._on_their_way += several
        ring = self._rings.get(dtype)
        if ring is None:
            ring = self._rings[dtype] = _Ring(self._torch, dtype)
        return ring, ring.room_for(several)

    def _keep(self, awaited: _Awaited) -> None:
        self._unmarked.append(awaited)
        if len(self._unmarked) >= TOGETHER:
            self._mark()
            self.drain()

    def _mark(self) -> None:
        self._marked_at = time.monotonic()
        if not self._unmarked:
            return
        together, self._unmarked = self._unmarked, []
        arrived = self._events.pop() if self._events else self._torch.cuda.Event()
        arrived.record(self._stream)
        self._marked.append((arrived, together))

    def _take(self) -> None:
        arrived, together = self._marked.popleft()
        self._events.append(arrived)
        for one in together:
            self._on_their_way -= one.several
            one.then(one.ring.part(one.first, one.several).tolist())
