"""The driver of AMD's GPUs: opens them through ROCm's package amdsmi, and explains why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.devices.amd.amd import AmdGpu, number
from stepscope.devices.gpu import Gpu, GpuFacts
from stepscope.devices.gpu_driver import (
    DriverOptions,
    GpuDriver,
    GpusUnavailable,
    Reason,
    gpu_at,
    gpu_by_uuid,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import ModuleType

    from stepscope.devices.gpu_driver import Visible

PACKAGE_MISSING = Reason(
    "There is an AMD GPU, but the package amdsmi is missing.",
    "pip install amdsmi (of the version of ROCm that is installed here)",
)
HAS_NO_GPU = Reason(
    "The AMD driver works but finds no GPU.",
    "In a container, add the devices: docker run --device /dev/kfd --device /dev/dri.",
)


def reason_of_amdsmi(error: Exception) -> Reason:
    """Explains an error of amdsmi at its import or initialisation."""
    return Reason(
        f"The AMD driver does not answer: {error}.",
        "See whether amd-smi works; load the driver with: sudo modprobe amdgpu",
    )


class AmdDriver(GpuDriver):
    """The library, initialised once, and the GPUs it finds."""

    vendor = "AMD"
    order = 20

    @classmethod
    def open(cls, options: DriverOptions) -> AmdDriver | None:
        """Opens all GPUs; None without the device of the compute driver. Raises GpusUnavailable."""
        if not (options.dev / "kfd").exists():
            return None
        try:
            amdsmi = options.load("amdsmi")
        except ImportError:
            raise GpusUnavailable(PACKAGE_MISSING, has_hardware=True) from None
        except (OSError, AttributeError, KeyError) as error:  # ROCm is missing, or has another version
            raise GpusUnavailable(reason_of_amdsmi(error), has_hardware=True) from error
        try:
            driver = cls(amdsmi)
        except amdsmi.AmdSmiException as error:
            raise GpusUnavailable(reason_of_amdsmi(error), has_hardware=True) from error
        if not driver.gpus:
            driver.close()
            raise GpusUnavailable(HAS_NO_GPU, has_hardware=True)
        return driver

    @classmethod
    def visible(cls, environment: Mapping[str, str], gpus: Sequence[GpuFacts]) -> Visible:
        """The GPUs that ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES select."""
        return hip_devices(environment, gpus)

    def __init__(self, amdsmi: ModuleType) -> None:
        """Raises AmdSmiException when the driver cannot be used."""
        self._amdsmi = amdsmi
        self.gpus: list[Gpu] = []
        amdsmi.amdsmi_init()
        try:
            for index, handle in enumerate(amdsmi.amdsmi_get_processor_handles()):
                self.gpus.append(AmdGpu(amdsmi, handle, self._facts(handle, index)))
        except amdsmi.AmdSmiException:
            self.close()
            raise

    def close(self) -> None:
        """Shuts the library down."""
        self.gpus.clear()
        self._ask("amdsmi_shut_down")

    def _facts(self, handle: Any, index: int) -> GpuFacts:
        asic = self._ask("amdsmi_get_gpu_asic_info", handle) or {}
        enumeration = self._ask("amdsmi_get_gpu_enumeration_info", handle) or {}
        driver = self._ask("amdsmi_get_gpu_driver_info", handle) or {}
        limit = number((self._ask("amdsmi_get_power_cap_info", handle) or {}).get("power_cap"))
        memory = number((self._ask("amdsmi_get_gpu_vram_usage", handle) or {}).get("vram_total"))
        runtime_index = number(enumeration.get("hip_id"))
        bus = self._ask("amdsmi_get_gpu_device_bdf", handle)
        return GpuFacts(
            uuid=_uuid(asic, enumeration) or str(self._ask("amdsmi_get_gpu_device_uuid", handle) or bus),
            index=index,
            name=_text(asic.get("market_name")) or "AMD GPU",
            vendor="AMD",
            driver=_text(driver.get("driver_version")),
            pci_bus_id=_text(bus),
            memory_total_bytes=None if memory is None else int(memory) << 20,
            power_limit_watts=None if limit is None else limit / 1e6,
            runtime_index=None if runtime_index is None else int(runtime_index),
        )

    def _ask(self, name: str, *arguments: Any) -> Any | None:
        """The result of an optional query; None where it fails."""
        function = getattr(self._amdsmi, name, None)
        try:
            return None if function is None else function(*arguments)
        except self._amdsmi.AmdSmiException:
            return None


def _uuid(asic: dict[str, Any], enumeration: dict[str, Any]) -> str | None:
    """The UUID of a GPU in ROCR_VISIBLE_DEVICES and PyTorch."""
    known = _text(enumeration.get("hip_uuid"))
    serial = _text(asic.get("asic_serial"))
    return known or (f"GPU-{serial.removeprefix('0x').lower()}" if serial else None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value not in ("", "N/A") else None


def hip_devices(environment: Mapping[str, str], gpus: Sequence[GpuFacts]) -> Visible:
    """The GPUs that ROCR_VISIBLE_DEVICES, and then HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES, select.

    The second list selects from the result of the first. Both end at their first entry that matches no GPU;
    the first also ends at a repeated GPU, which the second skips.
    """
    order = _hip_order(gpus)
    first = environment.get("ROCR_VISIBLE_DEVICES")
    if first is not None:
        order = _listed([entry.strip() for entry in first.split(",")], order, gpus, repeats_end=True)
    second = environment.get("HIP_VISIBLE_DEVICES", environment.get("CUDA_VISIBLE_DEVICES"))
    if second is not None:
        left = [gpu for gpu in order if gpu is not None]
        order = _listed(second.split(","), order, left, repeats_end=False)
    return tuple(None if gpu is None else gpu.uuid for gpu in order)


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
        match = gpu_by_uuid(entry, gpus) if entry.startswith("GPU-") else gpu_at(entry, order)
        if match is None or (repeats_end and match[0] in chosen):
            break
        chosen.setdefault(*match)
    return list(chosen.values())
