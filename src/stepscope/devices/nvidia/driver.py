"""The driver of NVIDIA's GPUs: opens boards and slices through NVML, and explains why it cannot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from stepscope.devices.gpu import Gpu, GpuFacts, GpuLost
from stepscope.devices.gpu_driver import (
    DriverOptions,
    GpuDriver,
    GpusUnavailable,
    Reason,
    gpu_at,
    gpu_by_uuid,
)
from stepscope.devices.nvidia.nvidia import NvidiaGpu, OpenOptions
from stepscope.devices.nvidia.nvidia_board import Board
from stepscope.schema.sample import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

    from stepscope.devices.gpu_driver import Entry, Visible

_NUMBER = re.compile(r"[+-]?\d+")

PACKAGE_MISSING = Reason(
    "The package nvidia-ml-py is missing, so GPUs cannot be monitored.",
    "pip install nvidia-ml-py",
)
HAS_NO_GPU = Reason(
    "The NVIDIA driver works but finds no GPU.",
    "In a container or job, request one: docker run --gpus all, or sbatch --gres=gpu:1.",
)

_NVML_REASONS = {
    "LIBRARY_NOT_FOUND": Reason(
        "No NVIDIA driver is installed here (libnvidia-ml.so.1 is missing).",
        "If there is a GPU: install its driver, or run the container with --gpus all.",
    ),
    "DRIVER_NOT_LOADED": Reason(
        "The NVIDIA driver is installed but not loaded.",
        "Load it with: sudo modprobe nvidia",
    ),
    "NO_PERMISSION": Reason(
        "This user may not use the NVIDIA driver.",
        "See who may with: ls -l /dev/nvidia*",
    ),
    "GPU_NOT_FOUND": Reason(
        "The NVIDIA driver finds no GPU it can use.",
        "See why with: nvidia-smi; dmesg | grep -i nvrm",
    ),
    "LIB_RM_VERSION_MISMATCH": Reason(
        "The NVIDIA driver was updated while loaded: its parts have different versions.",
        "Restart the machine, or the container.",
    ),
}


def reason_of_nvml(nvml: ModuleType, error: Exception) -> Reason:
    """Explains an error of NVML at its initialisation."""
    code = getattr(error, "value", None)
    for name, reason in _NVML_REASONS.items():
        if code == getattr(nvml, f"NVML_ERROR_{name}", None):
            return reason
    return Reason(f"The NVIDIA driver does not answer: {error}.", "See whether nvidia-smi works.")


def reason_of_gpu(name: str, trouble: str) -> Reason:
    """Explains why one GPU cannot be read while the others can."""
    return Reason(f"{name} cannot be monitored: {trouble}.", "See why with: nvidia-smi; dmesg | grep -i nvrm")


class NvidiaDriver(GpuDriver):
    """NVML, initialised once, the GPUs it finds, and why others could not be opened."""

    vendor = "NVIDIA"
    order = 10

    @classmethod
    def open(cls, options: DriverOptions) -> NvidiaDriver:
        """Opens all boards and slices; raises GpusUnavailable."""
        try:
            nvml = options.load("pynvml")
        except ImportError:
            raise GpusUnavailable(PACKAGE_MISSING, has_hardware=False) from None
        try:
            driver = cls(OpenOptions(nvml, options.performance_counters, options.now))
        except nvml.NVMLError as error:
            raise GpusUnavailable(reason_of_nvml(nvml, error), has_hardware=False) from error
        if not driver.gpus and not driver.notices:
            driver.close()
            raise GpusUnavailable(HAS_NO_GPU, has_hardware=False)
        return driver

    @classmethod
    def visible(cls, environment: Mapping[str, str], gpus: Sequence[GpuFacts]) -> Visible:
        """The GPUs that CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER select."""
        return cuda_devices(environment, gpus)

    def __init__(self, options: OpenOptions) -> None:
        """Raises NVMLError when the driver cannot be used."""
        self._options, self._nvml = options, options.nvml
        self.gpus: list[Gpu] = []
        self.unavailable_gpus: dict[str, str] = {}
        """Why a GPU, or a slice of one, could not be opened."""
        self._nvml.nvmlInit()
        self._is_open = True
        try:
            self._version: str | None = self._ask(self._nvml.nvmlSystemGetDriverVersion)
            cuda: int | None = self._ask(self._nvml.nvmlSystemGetCudaDriverVersion)
            self._cuda = cuda and f"{cuda // 1000}.{cuda % 1000 // 10}"
            for index in range(self._nvml.nvmlDeviceGetCount()):
                self._open(index)
        except self._nvml.NVMLError:
            self.close()
            raise

    @property
    def notices(self) -> list[Notice]:  # type: ignore[override]
        """Why a GPU, or a slice of one, could not be opened."""
        return [
            Notice(f"gpu/nvidia/{name}", str(reason_of_gpu(name, trouble)))
            for name, trouble in self.unavailable_gpus.items()
        ]

    def close(self) -> None:
        """Closes the GPUs and NVML; only once, since NVML counts how often this process has opened it."""
        for gpu in self.gpus:
            gpu.close()
        self.gpus.clear()
        if self._is_open:
            self._is_open = False
            self._ask(self._nvml.nvmlShutdown)

    def _open(self, index: int) -> None:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            facts = self._facts(handle, index)
            self.gpus.append(NvidiaGpu(Board(self._nvml, handle), facts, self._options))
        except (self._nvml.NVMLError, GpuLost) as reason:
            self.unavailable_gpus[f"GPU {index}"] = str(reason)
            return
        for number, slice_handle in self._slices(handle):
            try:
                self.gpus.append(self._open_slice(slice_handle, handle, facts))
            except (self._nvml.NVMLError, GpuLost) as reason:
                self.unavailable_gpus[f"slice {number} of GPU {index}"] = str(reason)

    def _open_slice(self, handle: Any, whole: Any, parent: GpuFacts) -> Gpu:
        instance = self._nvml.nvmlDeviceGetGpuInstanceId(handle)
        facts = self._facts(
            handle,
            parent.index,
            pci_bus_id=parent.pci_bus_id,
            parent_uuid=parent.uuid,
            gpu_instance=instance,
            compute_instance=self._ask(self._nvml.nvmlDeviceGetComputeInstanceId, handle),
        )
        board = Board(self._nvml, handle)
        return NvidiaGpu(board, facts, self._options, slice_of=(whole, instance))

    def _facts(self, handle: Any, index: int, **of_a_slice: Any) -> GpuFacts:
        """The constant properties. Only the UUID is required: it distinguishes GPUs."""
        nvml = self._nvml
        uuid = str(nvml.nvmlDeviceGetUUID(handle))
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        limit = self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        pci = None if of_a_slice else self._ask(nvml.nvmlDeviceGetPciInfo, handle)
        facts: dict[str, Any] = {
            "name": self._ask(nvml.nvmlDeviceGetName, handle) or "NVIDIA GPU",
            "driver": self._version,
            "cuda": self._cuda,
            "pci_bus_id": pci and str(pci.busId),
            "memory_total_bytes": memory and memory.total,
            "power_limit_watts": limit and limit / 1000,
        }
        return GpuFacts(uuid=uuid, index=index, vendor="NVIDIA", **(facts | of_a_slice))

    def _slices(self, handle: Any) -> Iterator[tuple[int, Any]]:
        """The handles of a GPU's slices; their numbers have gaps."""
        mode = self._ask(self._nvml.nvmlDeviceGetMigMode, handle)
        if mode is None or mode[0] != self._nvml.NVML_DEVICE_MIG_ENABLE:
            return
        for number in range(self._ask(self._nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            slice_handle = self._ask(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
            if slice_handle is not None:
                yield number, slice_handle

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any | None:
        """The result of an optional query; None where it fails."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


def cuda_devices(environment: Mapping[str, str], gpus: Sequence[GpuFacts]) -> Visible:
    """The GPUs that CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER select.

    The list ends at its first entry that matches no GPU, or has another kind than the first: index, UUID or
    slice. A GPU that is listed twice makes none visible.
    """
    boards = [gpu for gpu in gpus if gpu.parent_uuid is None]
    slices = [gpu for gpu in gpus if gpu.parent_uuid is not None]
    order = _cuda_order(environment.get("CUDA_DEVICE_ORDER"), boards)
    variable = environment.get("CUDA_VISIBLE_DEVICES")
    if variable is None:
        return _shown_by_cuda(order, slices)
    kinds: dict[str, Callable[[str], Entry | None]] = {
        "index": lambda entry: _by_index(entry, order),
        "GPU-": lambda entry: gpu_by_uuid(entry, boards),
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
    return gpu_at(str(int(number[0])), order) if number else None


def _slice_named(entry: str, boards: Iterable[GpuFacts], slices: Sequence[GpuFacts]) -> Entry | None:
    """`MIG-<uuid>`, or the form of older drivers: `MIG-GPU-<uuid>/<GPU instance>/<compute instance>`."""
    if not entry.startswith("MIG-GPU-"):
        return gpu_by_uuid(entry, slices)
    uuid, *numbers = entry.removeprefix("MIG-").split("/")
    board = gpu_by_uuid(uuid, boards)
    if board is None or len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None
    instances = tuple(int(number) for number in numbers)
    for gpu in slices:
        if gpu.parent_uuid == board[0] and (gpu.gpu_instance, gpu.compute_instance) == instances:
            return gpu.uuid, gpu
    return None
