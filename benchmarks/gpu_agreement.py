"""Whether our figures of a GPU are those of nvidia-smi, and what reading them costs.

Run on a machine with an NVIDIA GPU and PyTorch: `PYTHONPATH=src python -m benchmarks.gpu_agreement`.
A child makes load; each second nvidia-smi is asked between two readings of ours. Exits with 1 if they differ.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.devices.find_gpus import find_gpus
from stepscope.devices.nvidia.nvidia import THROTTLE_BITS
from stepscope.devices.scripted import to_line
from stepscope.samplers.gpu import GpuSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from stepscope.devices.gpu import Gpu, GpuReading

MIB = 1 << 20
SAME_WITHIN = 0.05
"""Share by which a figure may differ; one unit of what nvidia-smi shows is always allowed."""

LOAD = """
import sys, time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("ready", flush=True)
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    for _ in range(20):
        c = a @ b
    torch.cuda.synchronize()
"""


@dataclass
class Figure:
    """A figure as nvidia-smi names it, ours in its unit, and how the two compared."""

    query: str
    ours: Callable[[GpuReading], float | None]
    exact: bool = False
    theirs: Callable[[float], float] = float
    """What of nvidia-smi's value is ours too."""
    compared: int = 0
    moving: int = 0
    wrong: int = 0
    worst: float = 0.0
    last: tuple[float | None, float | None] = (None, None)


def _scaled(name: str, factor: float) -> Callable[[GpuReading], float | None]:
    def read(reading: GpuReading) -> float | None:
        value = getattr(reading, name)
        return None if value is None else float(value) * factor

    return read


def _throttle_mask(reading: GpuReading) -> float | None:
    if reading.throttle_reasons is None:
        return None
    return float(sum(bit for bit, reason in THROTTLE_BITS.items() if reason in reading.throttle_reasons))


FIGURES = [
    Figure("memory.used", _scaled("memory_used_bytes", 1 / MIB), exact=True),
    Figure("memory.total", _scaled("memory_total_bytes", 1 / MIB), exact=True),
    Figure("utilization.gpu", _scaled("utilization_ratio", 100)),
    Figure("utilization.memory", _scaled("memory_utilization_ratio", 100)),
    Figure("utilization.encoder", _scaled("encoder_ratio", 100)),
    Figure("utilization.decoder", _scaled("decoder_ratio", 100)),
    Figure("temperature.gpu", _scaled("temperature_celsius", 1)),
    Figure("temperature.memory", _scaled("memory_temperature_celsius", 1)),
    Figure("power.draw", _scaled("power_watts", 1)),
    Figure("enforced.power.limit", _scaled("power_limit_watts", 1)),
    Figure("fan.speed", _scaled("fan_ratio", 100)),
    Figure("clocks.sm", _scaled("sm_clock_hertz", 1e-6)),
    Figure("clocks.mem", _scaled("memory_clock_hertz", 1e-6)),
    Figure("pcie.link.gen.current", _scaled("pcie_generation", 1), exact=True),
    Figure("pcie.link.gen.max", _scaled("pcie_generation_most", 1), exact=True),
    Figure("pcie.link.width.current", _scaled("pcie_width", 1), exact=True),
    Figure("pcie.link.width.max", _scaled("pcie_width_most", 1), exact=True),
    Figure(
        "clocks_event_reasons.active",
        _throttle_mask,
        exact=True,
        theirs=lambda mask: int(mask) & sum(THROTTLE_BITS),
    ),
    Figure("ecc.errors.corrected.volatile.total", _scaled("ecc_corrected_total", 1), exact=True),
    Figure("ecc.errors.uncorrected.volatile.total", _scaled("ecc_uncorrected_total", 1), exact=True),
    Figure("ecc.errors.corrected.aggregate.total", _scaled("ecc_corrected_lifetime_total", 1), exact=True),
    Figure(
        "ecc.errors.uncorrected.aggregate.total", _scaled("ecc_uncorrected_lifetime_total", 1), exact=True
    ),
]


@dataclass
class CountingNvml:
    """The library, counting the calls into it and their time."""

    nvml: ModuleType
    calls: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.nvml, name)
        if not name.startswith(("nvmlDevice", "nvmlGpm")):
            return real

        def counted(*arguments: Any) -> Any:
            self.calls[name] += 1
            began = time.perf_counter()
            try:
                return real(*arguments)
            finally:
                self.seconds[name] += time.perf_counter() - began

        return counted


def ask_nvidia_smi(queries: Sequence[str], uuid: str) -> list[float | None] | None:
    """What nvidia-smi shows; None for a figure it has not, and None at all for a query it does not know."""
    command = [
        "nvidia-smi",
        f"--id={uuid}",
        f"--query-gpu={','.join(queries)}",
        "--format=csv,noheader,nounits",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    return [_number(text.strip()) for text in done.stdout.strip().split(",")]


def _number(text: str) -> float | None:
    if text.startswith("0x"):
        return float(int(text, 16))
    return float(text) if text.replace(".", "", 1).isdecimal() else None


def compare(figure: Figure, before: GpuReading, shown: float | None, after: GpuReading) -> None:
    """Take one look into account: nvidia-smi's value must lie between ours, or by them."""
    first, second = figure.ours(before), figure.ours(after)
    figure.last = (second, shown)
    if first is None or second is None or shown is None:
        figure.wrong += (second is None) != (shown is None)
        return
    low, high = min(first, second), max(first, second)
    # A figure in whole units may be rounded either way.
    allowed = 0.999 if figure.exact else max(1.0, SAME_WITHIN * shown)
    difference = max(low - shown, shown - high, 0.0)
    figure.compared += 1
    figure.worst = max(figure.worst, difference)
    if difference > allowed:
        if high - low > allowed:
            figure.moving += 1
        else:
            figure.wrong += 1


def print_agreement(figures: Sequence[Figure]) -> bool:
    """The table; whether all agree."""
    print(f"{'figure':42} {'ours':>12} {'nvidia-smi':>12} {'worst':>9}  agrees")
    for figure in figures:
        ours, theirs = ("absent" if value is None else f"{value:.2f}" for value in figure.last)
        verdict = "NO" if figure.wrong else "yes"
        if figure.wrong or figure.moving:
            verdict += f" ({figure.wrong} wrong, {figure.moving} while it moved, of {figure.compared})"
        print(f"{figure.query:42} {ours:>12} {theirs:>12} {figure.worst:9.2f}  {verdict}")
    return not any(figure.wrong for figure in figures)


def print_cost(gpu: Gpu, nvml: CountingNvml) -> None:
    """What a fast and a thorough reading take, and which functions take it."""
    for thorough, times in ((False, 50), (True, 10)):
        nvml.calls.clear()
        nvml.seconds.clear()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(times):
            gpu.read(thorough=thorough)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(
            f"\none {'thorough' if thorough else 'fast'} reading: {1e3 * wall / times:.2f} ms, "
            f"{1e3 * cpu / times:.2f} ms of CPU, {sum(nvml.calls.values()) / times:.1f} calls"
        )
        for name, seconds in sorted(nvml.seconds.items(), key=lambda pair: -pair[1]):
            print(f"  {name:50} {nvml.calls[name] / times:5.1f} calls {1e3 * seconds / times:8.3f} ms")


def print_sampler_cost(samples: int = 30) -> None:
    """What the sampler takes of a core at one sample a second, thorough ones included."""
    seconds = [0.0]
    sampler = GpuSampler(_now=lambda: seconds[0])
    list(sampler.sample([]))
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(samples):
        seconds[0] += 1
        list(sampler.sample([]))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sampler.close()
    print(
        f"\none sample of all GPUs: {1e3 * wall / samples:.2f} ms, {1e3 * cpu / samples:.2f} ms of CPU",
        end=", ",
    )
    print(f"{100 * cpu / samples:.2f} % of a core at one a second")


def watch(gpu: Gpu, figures: Sequence[Figure], seconds: float, record: Path | None) -> None:
    """Compare once a second, while there is load and for a moment before."""
    load = subprocess.Popen([sys.executable, "-c", LOAD, str(seconds)], stdout=subprocess.PIPE, text=True)
    lines = []
    began = time.monotonic()
    try:
        while time.monotonic() - began < seconds:
            due = time.monotonic() + 1
            before = gpu.read(thorough=True)
            shown = ask_nvidia_smi([figure.query for figure in figures], gpu.facts.uuid)
            after = gpu.read(thorough=True)
            if shown is None:
                raise SystemExit("nvidia-smi failed in the middle of it.")
            for figure, value in zip(figures, shown, strict=True):
                compare(figure, before, None if value is None else figure.theirs(value), after)
            lines.append(to_line(round(time.monotonic() - began, 3), gpu.facts, before))
            time.sleep(max(0.0, due - time.monotonic()))
    finally:
        load.terminate()
        said, _ = load.communicate()
    if "ready" not in said:
        raise SystemExit("The child could not make load: see whether PyTorch works here.")
    if record is not None:
        record.write_text("\n".join(lines) + "\n")
    print(f"last reading: {lines[-1]}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--record", type=Path, help="write our readings to this file, as JSON lines")
    arguments = parser.parse_args()
    nvml = CountingNvml(importlib.import_module("pynvml"))
    modules: dict[str, Any] = {"pynvml": nvml}
    detected = find_gpus(load=lambda name: modules.get(name) or importlib.import_module(name))
    for notice in detected.notices:
        print(notice.text)
    if not detected.gpus:
        return 1
    gpu = detected.gpus[0]
    print(f"{gpu.facts}\n")
    figures = [figure for figure in FIGURES if ask_nvidia_smi([figure.query], gpu.facts.uuid) is not None]
    print(
        "not known to nvidia-smi:",
        ", ".join(figure.query for figure in FIGURES if figure not in figures) or "none",
    )
    watch(gpu, figures, arguments.seconds, arguments.record)
    agrees = print_agreement(figures)
    print("\nfigures this GPU does not give:", ", ".join(sorted(gpu.absent())) or "none")
    print_cost(gpu, nvml)
    detected.close()
    print_sampler_cost()
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
