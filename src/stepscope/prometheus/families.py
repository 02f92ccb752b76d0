"""The metric families that Prometheus gets: names, types, labels, units, and what each one means.

Some names are those of older documents: they have no prefix, and some have units other than base units. In
these, `mb` is mebibytes (bytes / 1,048,576), as in `nvidia-smi`. All other names begin with `stepscope_`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stepscope.schema.keys import EXPORTER_DROPPED, EXPORTER_FAILING

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1024 * 1024
PERCENT = 100.0

Kind = Literal["gauge", "counter", "histogram"]
Names = Literal["required", "prefixed", "both"]
"""Which families are served: those without a prefix, those with it, or both."""

PREFIX = "stepscope_"

RUN = ("project", "run")
RANK = (*RUN, "rank")
HOST = ("host",)
GPU = ("host", "gpu", "uuid")


@dataclass(frozen=True)
class Family:
    """One metric family. Values are held in base units; `factor` converts them."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    factor: float = 1.0
    twin: str = ""
    """The name of the same figure with the prefix and in base units, for a name that lacks one of them."""
    is_repeated: bool = False
    """Whether the figure is served under a name with the prefix anyway."""

    def versions(self, names: Names, *, base_units: bool) -> Iterator[Family]:
        """Yields the families under which the figure is served."""
        is_prefixed = self.name.startswith(PREFIX)
        if names != ("required" if is_prefixed else "prefixed"):
            yield self
        if is_prefixed or self.is_repeated or not (names == "prefixed" or (base_units and self.twin)):
            return
        twin = self.twin or PREFIX + self.name
        yield Family(
            twin, self.kind, self.labels, self.help.replace(", in MiB", "").replace(", 0 to 100", "")
        )


def _gauge(name: str, labels: tuple[str, ...], about: str, factor: float = 1.0, twin: str = "") -> Family:
    return Family(name, "gauge", labels, about, factor, twin)


def _counter(name: str, labels: tuple[str, ...], about: str, factor: float = 1.0) -> Family:
    return Family(name, "counter", labels, about, factor)


GPU_GAUGES = {
    "gpu/utilization_ratio": _gauge(
        "gpu_utilization_percent", GPU, "Share of the last moments in which a kernel ran, 0 to 100.",
        PERCENT, "stepscope_gpu_utilization_ratio",
    ),
    "gpu/memory_used_bytes": _gauge(
        "gpu_memory_used_mb", GPU, "Device memory in use by all processes, in MiB.",
        1 / MIB, "stepscope_gpu_memory_used_bytes",
    ),
    "gpu/memory_total_bytes": _gauge(
        "gpu_memory_total_mb", GPU, "Size of the device memory, in MiB.",
        1 / MIB, "stepscope_gpu_memory_total_bytes",
    ),
    "gpu/temperature_celsius": _gauge("gpu_temperature_celsius", GPU, "Temperature of the chip."),
    "gpu/power_watts": _gauge("gpu_power_draw_watts", GPU, "Power the board draws."),
    "gpu/fan_ratio": _gauge(
        "gpu_fan_speed_percent", GPU, "Target speed of the fan, 0 to 100; absent without a fan.",
        PERCENT, "stepscope_gpu_fan_speed_ratio",
    ),
    "gpu/sm_active_ratio": _gauge(
        "stepscope_gpu_sm_active_ratio", GPU, "Share of the compute units that had work."
    ),
    "gpu/sm_occupancy_ratio": _gauge(
        "stepscope_gpu_sm_occupancy_ratio", GPU, "Resident warps as a share of the maximum."
    ),
    "gpu/tensor_active_ratio": _gauge(
        "stepscope_gpu_tensor_active_ratio", GPU, "Share of time in which the tensor cores were busy."
    ),
    "gpu/dram_active_ratio": _gauge(
        "stepscope_gpu_dram_active_ratio", GPU, "Share of the bandwidth of device memory in use."
    ),
    "gpu/power_limit_watts": _gauge("stepscope_gpu_power_limit_watts", GPU, "Power the board may draw."),
}  # fmt: skip
"""Gauges of a GPU, by the key of the figure."""

GPU_MEMORY_BY_ID = Family(
    "gpu_memory_mb", "gauge", ("host", "gpu_id"), "Device memory in use by all processes, in MiB.", 1 / MIB,
    is_repeated=True,
)  # fmt: skip
"""The same as `gpu_memory_used_mb`, with the label that an older document gives it."""

GPU_CLOCK = _gauge(
    "stepscope_gpu_clock_hertz", (*GPU, "clock"), "Clock of the compute units or of the memory."
)
GPU_CLOCKS = {"gpu/sm_clock_hertz": "sm", "gpu/memory_clock_hertz": "memory"}

GPU_ENERGY_KEY = "gpu/energy_joules_total"
GPU_ENERGY = _counter("stepscope_gpu_energy_joules_total", GPU, "Energy used since the driver was loaded.")
GPU_ECC = _counter(
    "stepscope_gpu_ecc_errors_total", (*GPU, "type"), "Memory errors since the driver was loaded."
)
GPU_ECC_TYPES = {"gpu/ecc_corrected_total": "corrected", "gpu/ecc_uncorrected_total": "uncorrected"}

GPU_THROTTLE = _counter(
    "stepscope_gpu_throttle_seconds_total", (*GPU, "reason"), "Time with reduced clocks, by the reason."
)
THROTTLE_KEY_START = "gpu/throttled_"

PCIE = _counter(
    "stepscope_pcie_bytes_total", (*GPU, "direction"), "Traffic over PCI Express, from samples of its rate."
)
PCIE_DIRECTIONS = {
    "gpu/pcie_received_bytes_per_second": "received", "gpu/pcie_sent_bytes_per_second": "sent",
}  # fmt: skip

CPU_PERCENT = Family(
    "cpu_usage_percent", "gauge", HOST, "Share of processor time in use, 0 to 100.", PERCENT, is_repeated=True
)
CPU_KEY = "cpu/utilization_ratio"
HOST_GAUGES = {
    CPU_KEY: _gauge("stepscope_system_cpu_ratio", HOST, "Share of processor time in use."),
    "memory/used_bytes": _gauge(
        "stepscope_system_memory_used_bytes", HOST, "Memory that a program cannot allocate."
    ),
}
DISK = _counter(
    "stepscope_disk_bytes_total", (*HOST, "direction"), "Bytes read from and written to all disks."
)
DISK_DIRECTIONS = {"disk/read_bytes_per_second": "read", "disk/write_bytes_per_second": "write"}
NETWORK = _counter(
    "stepscope_network_bytes_total", (*HOST, "direction"), "Bytes over all network interfaces."
)
NETWORK_DIRECTIONS = {
    "network/received_bytes_per_second": "received",
    "network/sent_bytes_per_second": "sent",
}

RATE_KEYS = frozenset((*PCIE_DIRECTIONS, *DISK_DIRECTIONS, *NETWORK_DIRECTIONS))
"""Recorded rates that are served as counters: their sum over time since the first sample."""

LOSS = _gauge("training_loss", RANK, "Last training loss; NaN and infinities are served as such.")
STEPS = _counter(
    "training_steps_total", RANK, "Steps done; going back to an earlier checkpoint is a reset of the counter."
)
EPOCH = _gauge("training_epoch", RUN, "Current epoch.")
LEARNING_RATE = _gauge(
    "learning_rate", (*RUN, "group"), "Learning rate of a parameter group of the optimizer."
)
GRADIENT_NORM = _gauge("gradient_norm", RANK, "Last global L2 norm of the gradients, before clipping.")
STEP_DURATION = Family("training_step_duration_seconds", "histogram", RANK, "Time of a step, start to start.")
ALLOCATED = _gauge(
    "memory_allocation_mb", (*RANK, "gpu"), "Memory allocated by PyTorch's allocator, in MiB.",
    1 / MIB, "stepscope_torch_memory_allocated_bytes",
)  # fmt: skip

PHASE_SECONDS = _counter(
    "stepscope_step_phase_seconds_total", (*RANK, "phase"),
    "Time of the phases of all steps, estimated from the steps that were timed phase by phase.",
)  # fmt: skip
PHASE_LABELS = {
    "data": "data", "transfer": "h2d", "forward": "forward", "backward": "backward", "optimizer": "optimizer",
    "other": "other",
}  # fmt: skip
"""Phases of a step, and their labels."""

SAMPLES = _counter(
    "stepscope_samples_total", RANK, "Samples in the steps done, from the newest known batch size."
)
TOKENS = _counter(
    "stepscope_tokens_total", RANK, "Tokens in the steps done, from the newest known batch size."
)
OVERHEAD = _counter(
    "stepscope_overhead_seconds_total", RANK, "Time of the training thread spent on recording."
)
DROPPED = _counter(
    "stepscope_points_dropped_total", RANK, "Records that could not be written, or were damaged."
)

RANK_GAUGES = {
    "memory/reserved_bytes": _gauge(
        "stepscope_torch_memory_reserved_bytes", (*RANK, "gpu"), "Memory reserved by PyTorch's allocator."
    ),
    "memory/peak_bytes": _gauge(
        "stepscope_torch_memory_peak_bytes", (*RANK, "gpu"), "Peak of the memory that PyTorch has allocated."
    ),
    "process/cpu_ratio": _gauge(
        "stepscope_process_cpu_ratio", RANK, "Processor time of the training process; 1 is one whole core."
    ),
    "process/rss_bytes": _gauge(
        "stepscope_process_resident_bytes", RANK, "Memory of the training process, shared memory included."
    ),
    "loader/ready_batches": _gauge(
        "stepscope_dataloader_queue_depth", RANK, "Batches that loader workers had ready when a step ended."
    ),
}
"""Gauges of a rank, by the key of the figure."""

WORKERS = _gauge("stepscope_dataloader_workers", RANK, "Worker processes of the data loader.")
PROGRESS = _gauge("stepscope_training_progress_ratio", RUN, "Steps done as a share of the total.")
ETA = _gauge("stepscope_eta_seconds", RUN, "Time until the last step, at the speed of the last 30 seconds.")
LAST_STEP = _gauge(
    "stepscope_last_step_timestamp_seconds", RANK, "When the last step of a live run ended, since the epoch."
)
RANK_LAG = _gauge("stepscope_rank_lag_steps", RANK, "Steps that a rank is behind the foremost rank.")
USER_METRIC = _gauge(
    "stepscope_user_metric", (*RANK, "name"), "Last value of a metric that the training logs."
)
FINDING = _gauge("stepscope_finding_active", (*RUN, "kind", "severity"), "1 for each open finding of a run.")
ALERT = _gauge("stepscope_alert_active", (*RUN, "rule", "severity"), "1 for each alert of a run that fires.")
ALERTS_SENT = _counter(
    "stepscope_alerts_sent_total", ("channel", "result"), "Notices of alerts, by their result."
)

EXPORTERS = {
    EXPORTER_FAILING: _gauge(
        "stepscope_exporter_failing", (*RUN, "exporter"), "1 while an exporter of a run fails, else 0."
    ),
    EXPORTER_DROPPED: _counter(
        "stepscope_exporter_dropped_total", (*RUN, "exporter"), "Values that an exporter of a run gave up."
    ),
}

BUILD_INFO = _gauge("stepscope_build_info", ("version", "python", "torch"), "Versions of the software.")
RUN_INFO = _gauge(
    "stepscope_run_info", (*RUN, "run_id", "framework", "precision", "world_size"), "Facts about a run."
)
GPU_INFO = _gauge(
    "stepscope_gpu_info", (*GPU, "name", "driver", "cuda", "cuda_index", "mig"), "Facts about a GPU."
)
UP = _gauge("stepscope_up", (), "0 until the first figures of a run or a machine have come, then 1.")

FAMILIES = (
    # of trainings
    LOSS, STEPS, EPOCH, LEARNING_RATE, GRADIENT_NORM, STEP_DURATION, ALLOCATED, PHASE_SECONDS, SAMPLES,
    TOKENS, OVERHEAD, DROPPED, *RANK_GAUGES.values(), WORKERS, PROGRESS, ETA, LAST_STEP, RANK_LAG,
    USER_METRIC, FINDING, ALERT, ALERTS_SENT, *EXPORTERS.values(), RUN_INFO,
    # of machines
    *GPU_GAUGES.values(), GPU_MEMORY_BY_ID, GPU_CLOCK, GPU_ENERGY, GPU_ECC, GPU_THROTTLE, PCIE, GPU_INFO,
    CPU_PERCENT, *HOST_GAUGES.values(), DISK, NETWORK,
    # of stepscope itself
    BUILD_INFO, UP,
)  # fmt: skip
"""All families in the order they are served, under the names they have without options."""
