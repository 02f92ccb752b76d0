"""AMD GPUs through the package amdsmi of ROCm: each figure read on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.devices.amd.amd_figures import FAST, THOROUGH, number
from stepscope.devices.gpu import FIGURES, Gpu, GpuFacts, GpuLost, GpuReading

if TYPE_CHECKING:
    from types import ModuleType

    from stepscope.devices.amd.amd_figures import Question

REFUSALS = ("ERR_INVAL", "ERR_NOT_SUPPORTED", "NOT_IMPLEMENTED", "ERR_NO_PERM")
LOSSES = ("NOT_INIT", "DRIVER_NOT_LOADED")


class AmdGpu(Gpu):
    """One GPU."""

    def __init__(self, amdsmi: ModuleType, handle: Any, facts: GpuFacts) -> None:
        self.facts = facts
        self._amdsmi, self._handle = amdsmi, handle
        self._refusals, self._losses = _codes(amdsmi, REFUSALS), _codes(amdsmi, LOSSES)
        self._refused: set[Question] = set()
        self._given: set[str] = set()
        """Figures that were there once."""

    def read(self, *, thorough: bool) -> GpuReading:
        """Asks for everything that it has not refused; raises GpuLost when none of it is answered."""
        found: dict[str, Any] = {}
        refused: set[Question] = set()
        answers, trouble = 0, "it answers nothing"
        for question in self._open_questions(thorough=thorough):
            try:
                found |= self._figures(question)
                answers += 1
            except self._amdsmi.AmdSmiException as error:
                trouble = str(error)
                code = error.get_error_code() if hasattr(error, "get_error_code") else None
                if code in self._losses:
                    raise GpuLost(trouble) from error
                if code in self._refusals:
                    refused.add(question)
        if not answers:
            raise GpuLost(trouble)
        self._refused |= refused
        self._given |= found.keys()
        return GpuReading(**found)

    def absent(self) -> frozenset[str]:
        """The figures that have never been there."""
        return FIGURES - self._given

    def _open_questions(self, *, thorough: bool) -> list[Question]:
        """Those not refused, of those that this version of the library has a function for."""
        asked = (*FAST, *THOROUGH) if thorough else FAST
        return [one for one in asked if one not in self._refused and hasattr(self._amdsmi, one.function)]

    def _figures(self, question: Question) -> dict[str, Any]:
        """What the answer to a question gives; figures the library marks as not available are left out."""
        function = getattr(self._amdsmi, question.function)
        answer = function(self._handle, *(self._constant(name) for name in question.arguments))
        return {name: value for name, value in question.meaning(answer).items() if value is not None}

    def _constant(self, name: str | int) -> Any:
        if isinstance(name, int):
            return name
        enumeration, _, member = name.partition(".")
        return getattr(getattr(self._amdsmi, enumeration), member)


class AmdDriver:
    """The library, initialised once, and the GPUs it shows."""

    def __init__(self, amdsmi: ModuleType) -> None:
        """Raises AmdSmiException when the driver cannot be asked at all."""
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
        """Lets go of the driver."""
        self.gpus.clear()
        self._ask("amdsmi_shut_down")

    def _facts(self, handle: Any, index: int) -> GpuFacts:
        asic = self._ask("amdsmi_get_gpu_asic_info", handle) or {}
        counted = self._ask("amdsmi_get_gpu_enumeration_info", handle) or {}
        driver = self._ask("amdsmi_get_gpu_driver_info", handle) or {}
        limit = number((self._ask("amdsmi_get_power_cap_info", handle) or {}).get("power_cap"))
        memory = number((self._ask("amdsmi_get_gpu_vram_usage", handle) or {}).get("vram_total"))
        place = number(counted.get("hip_id"))
        bus = self._ask("amdsmi_get_gpu_device_bdf", handle)
        return GpuFacts(
            uuid=_uuid(asic, counted) or str(self._ask("amdsmi_get_gpu_device_uuid", handle) or bus),
            index=index,
            name=_words(asic.get("market_name")) or "AMD GPU",
            vendor="AMD",
            driver=_words(driver.get("driver_version")),
            pci_bus_id=_words(bus),
            memory_total_bytes=None if memory is None else int(memory) << 20,
            power_limit_watts=None if limit is None else limit / 1e6,
            runtime_index=None if place is None else int(place),
        )

    def _ask(self, name: str, *arguments: Any) -> Any | None:
        """An answer that can be done without."""
        function = getattr(self._amdsmi, name, None)
        try:
            return None if function is None else function(*arguments)
        except self._amdsmi.AmdSmiException:
            return None


def _uuid(asic: dict[str, Any], counted: dict[str, Any]) -> str | None:
    """The name that ROCR_VISIBLE_DEVICES and PyTorch know a GPU by."""
    known = _words(counted.get("hip_uuid"))
    serial = _words(asic.get("asic_serial"))
    return known or (f"GPU-{serial.removeprefix('0x').lower()}" if serial else None)


def _words(value: Any) -> str | None:
    return value if isinstance(value, str) and value not in ("", "N/A") else None


def _codes(amdsmi: ModuleType, names: tuple[str, ...]) -> frozenset[int]:
    """The numbers of errors; versions of the library differ in which they have."""
    return frozenset(
        int(getattr(amdsmi.AmdSmiRetCode, name)) for name in names if hasattr(amdsmi.AmdSmiRetCode, name)
    )
