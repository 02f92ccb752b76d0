"""The OpenTelemetry metric for each recorded key: name, unit, kind and attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from stepscope.schema.keys import LOSS_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["gauge", "up_down", "counter", "histogram"]

SERVICE = "stepscope"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the conventions that names and attributes follow; those for hardware are in development."""
RANK = "ml.training.rank"
PHASE = "ml.training.phase"


@dataclass(frozen=True)
class Instrument:
    """A metric of OpenTelemetry."""

    name: str
    unit: str
    kind: Kind
    description: str


@dataclass(frozen=True)
class Conversion:
    """Makes a point of a machine metric; with several keys, of the highest of their values."""

    instrument: Instrument
    keys: tuple[str, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    is_rate: bool = False
    """Whether the keys are rates per second, of which a counter is the sum over time."""


STEP_DURATION = Instrument("ml.training.step.duration", "s", "histogram", "Wall time of a step.")
STEPS = Instrument(
    "ml.training.steps", "{step}", "counter", "Steps done; a counter reset where they go back."
)
PHASE_TIME = Instrument(
    "ml.training.phase.time", "s", "counter", "Time in each phase of a step, estimated from the timed steps."
)

TRAINING = (
    (Instrument("ml.training.loss", "1", "gauge", "Newest training loss."), LOSS_KEYS),
    (
        Instrument("ml.training.learning_rate", "1", "gauge", "Newest learning rate."),
        ("learning_rate", "lr"),
    ),
    (
        Instrument("ml.training.gradient_norm", "1", "gauge", "Newest norm of all gradients."),
        ("gradient_norm", "grad_norm"),
    ),
)
"""Gauges of a training; of several keys, the first that a rank has logged is used."""

_GPU_BUSY = Instrument("hw.gpu.utilization", "1", "gauge", "Fraction of time spent in a task.")
_GPU_MEMORY = Instrument("hw.gpu.memory.usage", "By", "up_down", "GPU memory used.")
_GPU_LIMIT = Instrument("hw.gpu.memory.limit", "By", "up_down", "Size of the GPU memory.")
_GPU_FILLED = Instrument("hw.gpu.memory.utilization", "1", "gauge", "Fraction of GPU memory used.")
_GPU_IO = Instrument(
    "hw.gpu.io", "By", "counter", "Bytes over PCI Express, estimated from the rate of each reading."
)
_POWER = Instrument("hw.power", "W", "gauge", "Power the component draws.")
_ENERGY = Instrument("hw.energy", "J", "counter", "Energy the component has used.")
_TEMPERATURE = Instrument("hw.temperature", "Cel", "gauge", "Temperature of the component.")
_FAN = Instrument("hw.fan.speed_ratio", "1", "gauge", "Fan speed as a fraction of its maximum.")
_ERRORS = Instrument("hw.errors", "{error}", "counter", "Number of errors of the component.")
_STATUS = Instrument("hw.status", "1", "up_down", "Operational status: 1 (true) or 0 (false).")

_CPU_BUSY = Instrument("system.cpu.utilization", "1", "gauge", "Fraction of processor time in a mode.")
_MEMORY = Instrument("system.memory.usage", "By", "up_down", "Memory in use.")
_MEMORY_LIMIT = Instrument("system.memory.limit", "By", "up_down", "Memory the host has.")
_MEMORY_FILLED = Instrument("system.memory.utilization", "1", "gauge", "Fraction of memory in use.")
_MEMORY_LEFT = Instrument(
    "system.memory.linux.available", "By", "up_down", "Memory a program can allocate without swapping."
)
_DISK_IO = Instrument("system.disk.io", "By", "counter", "Disk bytes transferred.")
_NETWORK_IO = Instrument("system.network.io", "By", "counter", "Network bytes transferred.")
_PROCESS_CPU = Instrument("process.cpu.time", "s", "counter", "Processor time of the process.")
_PROCESS_MEMORY = Instrument("process.memory.usage", "By", "up_down", "Physical memory in use.")
_PROCESS_THREADS = Instrument("process.thread.count", "{thread}", "up_down", "Threads of the process.")
_PROCESS_IO = Instrument("process.disk.io", "By", "counter", "Disk bytes transferred.")

_TASK, _MODE = "hw.gpu.task", "cpu.mode"
_NETWORK_DIRECTION, _DISK_DIRECTION = "network.io.direction", "disk.io.direction"
_OF_GPU = {"hw.type": "gpu"}

GPU = (
    Conversion(_GPU_BUSY, ("gpu/utilization_ratio",), {_TASK: "general"}),
    Conversion(_GPU_BUSY, ("gpu/encoder_ratio",), {_TASK: "encoder"}),
    Conversion(_GPU_BUSY, ("gpu/decoder_ratio",), {_TASK: "decoder"}),
    Conversion(_GPU_MEMORY, ("gpu/memory_used_bytes",)),
    Conversion(_GPU_LIMIT, ("gpu/memory_total_bytes",)),
    Conversion(_GPU_FILLED, ("gpu/memory_used_ratio",)),
    Conversion(
        _GPU_IO, ("gpu/pcie_received_bytes_per_second",), {_NETWORK_DIRECTION: "receive"}, is_rate=True
    ),
    Conversion(_GPU_IO, ("gpu/pcie_sent_bytes_per_second",), {_NETWORK_DIRECTION: "transmit"}, is_rate=True),
    Conversion(_POWER, ("gpu/power_watts",), _OF_GPU),
    Conversion(_ENERGY, ("gpu/energy_joules_total",), _OF_GPU),
    Conversion(_TEMPERATURE, ("gpu/temperature_celsius",), _OF_GPU),
    Conversion(_FAN, ("gpu/fan_ratio",)),
    Conversion(_ERRORS, ("gpu/ecc_corrected_total",), {**_OF_GPU, "error.type": "corrected"}),
    Conversion(_ERRORS, ("gpu/ecc_uncorrected_total",), {**_OF_GPU, "error.type": "uncorrected"}),
    Conversion(
        _STATUS,
        ("gpu/throttled_hardware_slowdown", "gpu/throttled_hardware_thermal", "gpu/throttled_power_brake"),
        {**_OF_GPU, "hw.state": "degraded"},
    ),
    Conversion(_STATUS, ("gpu/remap_failed",), {**_OF_GPU, "hw.state": "predicted_failure"}),
)

HOST = (
    Conversion(_CPU_BUSY, ("cpu/user_ratio",), {_MODE: "user"}),
    Conversion(_CPU_BUSY, ("cpu/system_ratio",), {_MODE: "system"}),
    Conversion(_CPU_BUSY, ("cpu/iowait_ratio",), {_MODE: "iowait"}),
    Conversion(_CPU_BUSY, ("cpu/steal_ratio",), {_MODE: "steal"}),
    Conversion(_MEMORY, ("memory/used_bytes",), {"system.memory.state": "used"}),
    Conversion(_MEMORY_LIMIT, ("memory/total_bytes",)),
    Conversion(_MEMORY_FILLED, ("memory/used_ratio",), {"system.memory.state": "used"}),
    Conversion(_MEMORY_LEFT, ("memory/available_bytes",)),
)

DEVICE = (
    Conversion(_DISK_IO, ("disk/read_bytes_per_second",), {_DISK_DIRECTION: "read"}, is_rate=True),
    Conversion(_DISK_IO, ("disk/write_bytes_per_second",), {_DISK_DIRECTION: "write"}, is_rate=True),
    Conversion(
        _NETWORK_IO, ("network/received_bytes_per_second",), {_NETWORK_DIRECTION: "receive"}, is_rate=True
    ),
    Conversion(
        _NETWORK_IO, ("network/sent_bytes_per_second",), {_NETWORK_DIRECTION: "transmit"}, is_rate=True
    ),
)
"""Of a disk or a network interface; the sums over all of them are left out, for readers add them up."""

DEVICE_ATTRIBUTES = {"system.disk.io": "system.device", "system.network.io": "network.interface.name"}

PROCESS = (
    Conversion(_PROCESS_CPU, ("process/cpu_user_seconds_total",), {_MODE: "user"}),
    Conversion(_PROCESS_CPU, ("process/cpu_system_seconds_total",), {_MODE: "system"}),
    Conversion(_PROCESS_MEMORY, ("process/rss_bytes",)),
    Conversion(_PROCESS_THREADS, ("process/threads",)),
    Conversion(_PROCESS_IO, ("process/disk_read_bytes_per_second",), {_DISK_DIRECTION: "read"}, is_rate=True),
    Conversion(
        _PROCESS_IO, ("process/disk_write_bytes_per_second",), {_DISK_DIRECTION: "write"}, is_rate=True
    ),
)

GPU_ATTRIBUTES = {
    "uuid": "hw.id",
    "name": "hw.model",
    "vendor": "hw.vendor",
    "driver": "hw.driver_version",
    "parent_uuid": "hw.parent",
}
"""Attributes of a GPU, by the facts they come from."""


def gpu_attributes(facts: Mapping[str, object]) -> dict[str, str]:
    """The attributes of a GPU's points: what identifies it, and its model."""
    attributes = {name: str(facts[fact]) for fact, name in GPU_ATTRIBUTES.items() if fact in facts}
    return {**attributes, "hw.name": f"GPU {facts['index']}"}
