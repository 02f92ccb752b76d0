"""Maps cuda:0, cuda:1 … of a process to physical GPUs, from its environment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from stepscope.devices.gpu import GpuFacts

Visible = tuple[str | None, ...]
"""The UUID of each GPU a process sees, in its own order; None where it is unknown which one it is."""

Entry = tuple[object, "GpuFacts | None"]
"""The meaning of a list entry: a key to detect repetitions, and the GPU, if known."""

_NUMBER = re.compile(r"[+-]?\d+")


def visible_gpus(environment: Mapping[str, str], gpus: Sequence[GpuFacts]) -> Visible:
    """The GPUs a process with that environment sees: NVIDIA's, or AMD's where there are none."""
    if any(gpu.vendor == "NVIDIA" for gpu in gpus):
        return cuda_devices(environment, gpus)
    return hip_devices(environment, gpus)


def cuda_devices(environment: Mapping[str, str], gpus: Sequence[GpuFacts]) -> Visible:
    """The GPUs that CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER select.

    The list ends at its first entry that matches no GPU, or has another kind than the first: index, UUID or
    slice. A GPU that is listed twice makes none visible.
    """
    of_nvidia = [gpu for gpu in gpus if gpu.vendor == "NVIDIA"]
    boards = [gpu for gpu in of_nvidia if gpu.parent_uuid is None]
    slices = [gpu for gpu in of_nvidia if gpu.parent_uuid is not None]
    order = _cuda_order(environment.get("CUDA_DEVICE_ORDER"), boards)
    variable = environment.get("CUDA_VISIBLE_DEVICES")
    if variable is None:
        return _shown_by_cuda(order, slices)
    kinds: dict[str, Callable[[str], Entry | None]] = {
        "index": lambda entry: _by_index(entry, order),
        "GPU-": lambda entry: _by_uuid(entry, boards),
        "MIG-": lambda entry: _slice_named(entry, boards, slices),
    }
    entries = variable.split(",")
    kind = _kind(entries[0])
    chosen: dict[object, GpuFacts | None] = {}
    for entry in entries:
        match = kinds[kind](entry) if _kind(entry) == kind else None
        if match is None:
            break
        if match[0] in chosen:
            return ()
        chosen[match[0]] = match[1]
    return _shown_by_cuda(list(chosen.values()), slices)


def hip_devices(environment: Mapping[str, str], gpus: Sequence[GpuFacts]) -> Visible:
    """The GPUs that ROCR_VISIBLE_DEVICES, and then HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES, select.

    The second list selects from the result of the first. Both end at their first entry that matches no GPU;
    the first also ends at a repeated GPU, which the second skips.
    """
    of_amd = [gpu for gpu in gpus if gpu.vendor == "AMD"]
    order = _hip_order(of_amd)
    first = environment.get("ROCR_VISIBLE_DEVICES")
    if first is not None:
        order = _listed([entry.strip() for entry in first.split(",")], order, of_amd, repeats_end=True)
    second = environment.get("HIP_VISIBLE_DEVICES", environment.get("CUDA_VISIBLE_DEVICES"))
    if second is not None:
        left = [gpu for gpu in order if gpu is not None]
        order = _listed(second.split(","), order, left, repeats_end=False)
    return tuple(None if gpu is None else gpu.uuid for gpu in order)


def _kind(entry: str) -> str:
    return entry[:4] if entry[:4] in ("GPU-", "MIG-") else "index"


def _cuda_order(named: str | None, boards: Sequence[GpuFacts]) -> list[GpuFacts | None]:
    """CUDA's order: by bus, or the fastest first, which only CUDA knows unless all are identical."""
    by_bus = sorted(boards, key=lambda gpu: ((gpu.pci_bus_id or "").casefold(), gpu.index))
    if named == "PCI_BUS_ID" or len({(gpu.name, gpu.memory_total_bytes) for gpu in boards}) == 1:
        return list(by_bus)
    return [None] * len(boards)


def _shown_by_cuda(chosen: Sequence[GpuFacts | None], slices: Sequence[GpuFacts]) -> Visible:
    """A process sees one slice, or only whole GPUs; for a mixture, the result is not documented."""
    if not chosen or not slices:
        return tuple(None if gpu is None else gpu.uuid for gpu in chosen)
    first = chosen[0]
    if first is not None and first.parent_uuid is not None:
        return (first.uuid,)
    sliced = {gpu.parent_uuid for gpu in slices}
    if all(gpu is not None and gpu.uuid not in sliced for gpu in chosen):
        return tuple(gpu.uuid for gpu in chosen if gpu is not None)
    of_first = [gpu.uuid for gpu in slices if first is not None and gpu.parent_uuid == first.uuid]
    return (of_first[0],) if len(of_first) == 1 else (None,)


def _by_index(entry: str, order: Sequence[GpuFacts | None]) -> Entry | None:
    """CUDA reads the leading number of an entry, and ignores the rest."""
    number = _NUMBER.match(entry.strip())
    return _at(str(int(number[0])), order) if number else None


def _by_uuid(entry: str, gpus: Iterable[GpuFacts]) -> Entry | None:
    """The only GPU whose UUID has this prefix; `GPU-` alone is not a prefix."""
    beginning = entry.casefold()
    matches = [gpu for gpu in gpus if len(entry) > 4 and gpu.uuid.casefold().startswith(beginning)]
    return (matches[0].uuid, matches[0]) if len(matches) == 1 else None


def _slice_named(entry: str, boards: Iterable[GpuFacts], slices: Sequence[GpuFacts]) -> Entry | None:
    """`MIG-<uuid>`, or the form of older drivers: `MIG-GPU-<uuid>/<GPU instance>/<compute instance>`."""
    if not entry.startswith("MIG-GPU-"):
        return _by_uuid(entry, slices)
    uuid, *numbers = entry.removeprefix("MIG-").split("/")
    board = _by_uuid(uuid, boards)
    if board is None or len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None
    instances = tuple(int(number) for number in numbers)
    for gpu in slices:
        if gpu.parent_uuid == board[0] and (gpu.gpu_instance, gpu.compute_instance) == instances:
            return gpu.uuid, gpu
    return None


def _hip_order(gpus: Sequence[GpuFacts]) -> list[GpuFacts | None]:
    """HIP's order, where the driver reports it."""
    by_index = {gpu.runtime_index: gpu for gpu in gpus}
    if len(gpus) == 1:
        return list(gpus)
    if None in by_index or len(by_index) < len(gpus):
        return [None] * len(gpus)
    return [gpu for _, gpu in sorted(by_index.items(), key=lambda item: item[0] or 0)]


def _listed(
    entries: Iterable[str], order: Sequence[GpuFacts | None], gpus: Sequence[GpuFacts], *, repeats_end: bool
) -> list[GpuFacts | None]:
    """The GPUs of a list for ROCm; each entry is an index or the prefix of a UUID."""
    chosen: dict[object, GpuFacts | None] = {}
    for entry in entries:
        match = _by_uuid(entry, gpus) if entry.startswith("GPU-") else _at(entry, order)
        if match is None or (repeats_end and match[0] in chosen):
            break
        chosen.setdefault(*match)
    return list(chosen.values())


def _at(entry: str, order: Sequence[GpuFacts | None]) -> Entry | None:
    """The GPU of an index in canonical form: HIP does not accept `01`."""
    if not entry.isdecimal() or entry != str(int(entry)) or int(entry) >= len(order):
        return None
    gpu = order[int(entry)]
    return (entry if gpu is None else gpu.uuid), gpu
