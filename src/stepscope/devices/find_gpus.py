"""Finds the GPUs of all vendors, and explains why there are none or why one cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.devices.gpu_driver import DriverOptions, GpusUnavailable, vendors
from stepscope.schema.sample import Notice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepscope.devices.gpu import Gpu
    from stepscope.devices.gpu_driver import GpuDriver


@dataclass(frozen=True)
class GpusFound:
    """The open GPUs of this host, and notices about those that could not be opened."""

    gpus: Sequence[Gpu]
    notices: Sequence[Notice]
    drivers: Sequence[GpuDriver] = ()

    def close(self) -> None:
        """Closes the GPUs and their drivers."""
        for gpu in self.gpus:
            gpu.close()
        for driver in self.drivers:
            driver.close()


def find_gpus(**options: Any) -> GpusFound:
    """Opens every GPU of this host; `options` are those of `DriverOptions`.

    The reasons why a vendor has no GPU are reported only where no vendor has one.
    """
    drivers: list[GpuDriver] = []
    notices: list[Notice] = []
    absent: list[Notice] = []
    for name, kind in vendors().items():
        try:
            driver = kind.open(DriverOptions(**options))
        except GpusUnavailable as error:
            (notices if error.has_hardware else absent).append(Notice(f"gpu/{name}", str(error.reason)))
            continue
        if driver is not None:
            drivers.append(driver)
            notices += driver.notices
    gpus = [gpu for driver in drivers for gpu in driver.gpus]
    return GpusFound(gpus, notices if gpus else absent + notices, drivers)
