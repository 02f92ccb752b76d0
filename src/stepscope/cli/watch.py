"""Watches a machine, with or without a training: shows its figures and records them as a run."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.main import FINE, MISUSED
from stepscope.cli.options.find import add_store_argument
from stepscope.cli.options.prometheus_port import add_port_argument, check_port, with_port
from stepscope.cli.output.table import Column, shorten, table
from stepscope.cli.output.text import emit, safe, say, screen_width
from stepscope.config.find import settings_for, why_disabled
from stepscope.devices.gpu_driver import model_name
from stepscope.launcher.machine import MachineWatch
from stepscope.schema.sample import DeviceFacts, Notice
from stepscope.views.formatting import size
from stepscope.views.machine.machine_now import GpuNow, HostNow, MachineNow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.agent.sampling import SamplerReadings
    from stepscope.schema.sample import Reading

FASTEST_S, SLOWEST_S = 0.1, 600.0
DRAW_EVERY_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what to watch, how often and how long."""
    parser.add_argument(
        "--gpu", type=int, action="append", metavar="N", help="only this GPU, as its driver counts"
    )
    parser.add_argument(
        "--interval", type=_interval, metavar="SECONDS", help="sampling interval, 0.1 to 600 (default: 1)"
    )
    parser.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="stop after this time")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each device and sample")
    parser.add_argument("--name", help="name of the recorded run (default: watch)")
    add_port_argument(parser)
    add_store_argument(parser)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not FASTEST_S <= seconds <= SLOWEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 600.")
    return seconds


def run(options: argparse.Namespace) -> int:
    """Shows the machine until it is stopped, and prints where it is recorded."""
    if options.seconds is not None and not 0 < options.seconds < float("inf"):
        say(f"stepscope watch: --for is {options.seconds:g}; it must be a number of seconds above 0.")
        return MISUSED
    settings = settings_for()
    settings = with_port(replace(settings, run=options.name or settings.run), options.prometheus_port)
    folder = Path(options.store or settings.directory or ".stepscope").absolute()
    watch = MachineWatch(folder, settings, options.interval)
    recorded = _can_record(watch, folder, enabled=settings.recorder.enabled)
    check_port(settings, options.prometheus_port, folder, recorded=recorded)
    watch.begin(recorded=recorded)
    for trouble in watch.trouble:
        say(trouble)
    try:
        show = _print_json if options.json else _draw
        show(watch, options)
    except KeyboardInterrupt:
        pass  # how a watch without --for ends
    finally:
        watch.end()
    return FINE


def _can_record(watch: MachineWatch, folder: Path, *, enabled: bool) -> bool:
    if not enabled:
        say(f"Nothing is recorded: {why_disabled()}. The machine is shown anyway.")
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = f"{folder} cannot be written ({error.strerror})"
        say(f"Nothing is recorded: {reason}. The machine is shown anyway.")
        return False
    say(f"Recorded as run {watch.identity.name} in {folder}; stop with Ctrl-C.")
    return True


def _print_json(watch: MachineWatch, options: argparse.Namespace) -> None:
    now = MachineNow()
    for readings in watch.readings(options.seconds):
        lines = [
            json.dumps(line)
            for reading in now.take(readings)
            if (line := _as_json(readings, reading, now, options.gpu, watch.identity.host)) is not None
        ]
        if lines:
            emit(lines)


def _as_json(
    readings: SamplerReadings, reading: Reading, now: MachineNow, chosen_gpus: list[int] | None, host: str
) -> dict[str, object] | None:
    """A line of the output; None for a GPU that was not chosen."""
    line: dict[str, object] = {"time": readings.time_ns / 1e9, "host": host, "sampler": readings.sampler}
    if isinstance(reading, Notice):
        return {**line, "notice": reading.text}
    index = now.index_of(reading.device)
    if index is not None:
        if chosen_gpus and index not in chosen_gpus:
            return None
        line["gpu"] = index
    line["device"] = reading.device
    if isinstance(reading, DeviceFacts):
        return {**line, "facts": dict(reading.fields)}
    return {**line, "values": dict(reading.values)}


def _draw(watch: MachineWatch, options: argparse.Namespace) -> None:
    """Draws the figures at every interval: in place on a terminal, one block after the other elsewhere."""
    now = MachineNow()
    interval_s = options.interval or DRAW_EVERY_S
    due, drawn = time.monotonic() + interval_s, 0
    for readings in watch.readings(options.seconds):
        for reading in now.take(readings):
            if isinstance(reading, Notice):
                say(reading.text)
                drawn = 0  # the notice is between this block and the next
        if time.monotonic() >= due:
            due += interval_s
            lines = [shorten(line, screen_width()) for line in block(now, options.gpu)]
            if drawn and sys.stdout.isatty():
                sys.stdout.write(f"\x1b[{drawn}F\x1b[J")
            emit(lines)
            drawn = len(lines)


def block(now: MachineNow, chosen_gpus: list[int] | None) -> Iterator[str]:
    """The lines of one drawing: the host, then the chosen GPUs, or all."""
    yield from table(_HOST, [_host_cells(now.host())], screen_width())
    gpus = [gpu for gpu in now.gpus() if not chosen_gpus or gpu.index in chosen_gpus]
    if gpus:
        yield from table(_GPU, [_gpu_cells(gpu) for gpu in gpus], screen_width())
    yield ""


_HOST = [
    Column("TIME"),
    *(Column(title, right=True) for title in ("CPU", "WAIT", "MEMORY", "READ/s", "WRITE/s", "IN/s", "OUT/s")),
]
_GPU = [
    Column("GPU", right=True),
    Column("NAME", elastic=True),
    *(Column(title, right=True) for title in ("UTIL", "MEMORY", "TEMP", "POWER", "CLOCK", "FAN")),
    Column("THROTTLED BY", elastic=True),
]


def _host_cells(host: HostNow) -> list[str]:
    return [
        time.strftime("%H:%M:%S"),
        _percent(host.cpu_ratio),
        _percent(host.iowait_ratio),
        _of(host.memory_used_bytes, host.memory_total_bytes),
        _rate(host.disk_read),
        _rate(host.disk_written),
        _rate(host.received),
        _rate(host.sent),
    ]


def _gpu_cells(gpu: GpuNow) -> list[str]:
    watts = "-" if gpu.power_watts is None else f"{gpu.power_watts:.0f}"
    limit = "" if gpu.power_limit_watts is None else f" / {gpu.power_limit_watts:.0f}"
    return [
        str(gpu.index),
        model_name(safe(gpu.name)),
        _percent(gpu.utilization_ratio),
        _of(gpu.memory_used_bytes, gpu.memory_total_bytes),
        "-" if gpu.temperature_celsius is None else f"{gpu.temperature_celsius:.0f}°C",
        f"{watts}{limit} W",
        "-" if gpu.sm_clock_hertz is None else f"{gpu.sm_clock_hertz / 1e6:.0f} MHz",
        _percent(gpu.fan_ratio),
        ", ".join(gpu.throttled) or "-",
    ]


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.0%}"


def _of(used: float | None, total: float | None) -> str:
    if used is None:
        return "-"
    return size(used) if not total else f"{size(used)} ({used / total:.0%})"


def _rate(bytes_per_second: float | None) -> str:
    return "-" if bytes_per_second is None else size(bytes_per_second)
