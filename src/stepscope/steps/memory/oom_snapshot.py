"""Reads the state of the allocator, the host and the stack after an out-of-memory error."""

from __future__ import annotations

import heapq
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.devices.host.cgroup import group_memory, group_of, hierarchies, memory_limits
from stepscope.devices.host.kernel_files import drop_none, named_numbers, read_text
from stepscope.devices.host.memory import host_memory
from stepscope.procfs import PROC
from stepscope.steps.evidence.allocator import figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType, TracebackType

MAX_SITES = 10

_LIBRARIES = ("/torch/", "/site-packages/", "/dist-packages/", "<")


@dataclass(frozen=True)
class Refusal:
    """The state of the allocator when an allocation failed, before any memory was freed."""

    device: int
    fields: Mapping[str, Any]


_failures: list[Refusal] = []
"""The last failure, if any. PyTorch cannot remove its observers, so the result is kept at module level."""

_observed: list[ModuleType] = []


def observe_failures(torch: ModuleType) -> None:
    """Registers an observer for failed allocations; a second call does nothing.

    It does nothing until the training uses a GPU: registering would initialise CUDA.
    """
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)  # noqa: SLF001 - it has no other name
    if attach is None or _observed or not torch.cuda.is_initialized():
        return
    _observed.append(torch)
    attach(_on_failure)


def last_failure() -> Refusal | None:
    """The last failed allocation on a GPU; None if none was observed."""
    return _failures[0] if _failures else None


def current_device(torch: ModuleType) -> int:
    """The index of the current GPU."""
    return int(torch.cuda.current_device()) if torch.cuda.is_initialized() else 0


def device_fields(torch: ModuleType, device: int) -> dict[str, Any]:
    """The memory of a GPU now, as the allocator sees it."""
    free, total = torch.cuda.mem_get_info(device)
    return {**_allocator_fields(torch, device), "free_bytes": free, "total_bytes": total}


def host_fields(proc: Path = PROC) -> dict[str, Any]:
    """The memory that the process uses, and what the host and its limits allow."""
    status = named_numbers(read_text(f"{proc}/self/status"))
    memory = host_memory(proc)
    fields = {
        "resident_bytes": _kilobytes(status, "VmRSS"),
        "peak_resident_bytes": _kilobytes(status, "VmHWM"),
        "address_space_bytes": _kilobytes(status, "VmSize"),
        "address_space_limit_bytes": _address_space_limit(),
    }
    if memory is not None:
        fields["total_bytes"], fields["available_bytes"] = memory.total_bytes, memory.available_bytes
    group = group_of("self", "memory", hierarchies(proc), proc)
    limits = memory_limits(group) if group is not None else []
    if group is not None and limits:
        held = group_memory(limits[0].level, group.version)
        fields["limit_bytes"] = limits[0].limit_bytes
        fields["limited_bytes"] = None if held is None else held.working_set_bytes or held.used_bytes
    return drop_none(fields)


def allocation_sites(torch: ModuleType) -> dict[str, Any]:
    """The lines of code with the largest live allocations; empty unless PyTorch records a memory history."""
    keeps_history = getattr(torch._C, "_cuda_isHistoryEnabled", None)  # noqa: SLF001 - it has no public name
    if keeps_history is None or not keeps_history():
        return {}
    try:
        snapshot = torch.cuda.memory_snapshot(include_traces=False)
    except TypeError:  # older versions always include the whole history
        snapshot = torch.cuda.memory_snapshot()
    return {"allocation_sites": largest_sites(snapshot)}


def largest_sites(segments: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Where the live blocks of a snapshot were allocated, the largest totals first."""
    sums: dict[str, list[int]] = {}
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                counted = sums.setdefault(_site(_frames(block)), [0, 0])
                counted[0] += block["size"]
                counted[1] += 1
    largest = heapq.nlargest(MAX_SITES, sums.items(), key=lambda site: site[1][0])
    return [{"site": site, "held_bytes": held, "blocks": blocks} for site, (held, blocks) in largest]


def raised_at(trace: TracebackType | None) -> str | None:
    """The innermost line of the user's own code in a traceback."""
    place = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if not _is_library(code.co_filename):
            place = _place(code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    return place


def _on_failure(device: int, asked: int, total: int, free: int) -> None:
    """Called by the allocator in the thread that allocates; an exception here would replace the real one."""
    fields: dict[str, Any] = {"asked_bytes": asked, "total_bytes": total, "free_bytes": free}
    try:
        fields.update(_allocator_fields(_observed[0], device))
    except Exception as error:  # noqa: BLE001 - the training must get the original error
        fields["not_told"] = {"allocator": type(error).__name__}
    _failures[:] = [Refusal(device, fields)]


def _allocator_fields(torch: ModuleType, device: int) -> dict[str, Any]:
    counters = torch._C._cuda_memoryStats(device)  # noqa: SLF001 - there is no public name for it
    plain = {key.removeprefix("memory/"): int(value) for key, value in figures(counters).items()}
    for pool in ("large_pool", "small_pool"):
        plain[f"{pool}_bytes"] = int(counters["allocated_bytes"][pool]["current"])
    plain["blocks"] = int(counters["allocation"]["all"]["current"])
    if "requested_bytes" in counters:
        plain["requested_bytes"] = int(counters["requested_bytes"]["all"]["current"])
    return plain


def _frames(block: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    if "frames" in block:
        return block["frames"]  # type: ignore[no-any-return]  # untyped in PyTorch
    history = block.get("history") or [{}]
    return history[0].get("frames", ())  # type: ignore[no-any-return]  # as older versions have it


def _site(frames: Iterable[Mapping[str, Any]]) -> str:
    """The user's own line among the frames of an allocation, which are ordered innermost first."""
    for frame in frames:
        if frame["filename"].endswith(".py") and not _is_library(frame["filename"]):
            return _place(frame["filename"], frame["line"], frame["name"])
    return "unknown"


def _is_library(filename: str) -> bool:
    return any(sign in filename for sign in _LIBRARIES)


def _place(filename: str, line: int, function: str) -> str:
    """A line of code without its folders, which may contain a person's name."""
    return f"{Path(filename).name}:{line} in {function}"[:200]


def _kilobytes(status: Mapping[str, int], name: str) -> int | None:
    return status[name] * 1024 if name in status else None


def _address_space_limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft
