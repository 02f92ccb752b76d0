"""What only a real NVIDIA GPU can show; skipped where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from stepscope.devices.find_gpus import GpusFound, find_gpus
from stepscope.devices.nvidia.driver import cuda_devices
from stepscope.samplers.gpu import GpuSampler
from stepscope.schema.sample import DeviceFacts, Sample, Watched

pytestmark = pytest.mark.gpu

MIB = 1 << 20

ASK_CUDA = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count, uuid = ctypes.c_int(0), (ctypes.c_ubyte * 16)()
if cuda.cuInit(0) == 0:
    cuda.cuDeviceGetCount(ctypes.byref(count))
for index in range(count.value):
    device = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetUuid_v2(ctypes.byref(uuid), device)
    print(bytes(uuid).hex())
"""

HOLD_MEMORY = """
import sys, torch
kept = torch.zeros(1 << 28, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def detected() -> Iterator[GpusFound]:
    detected = find_gpus()
    if not any(gpu.facts.vendor == "NVIDIA" for gpu in detected.gpus):
        pytest.skip(" ".join(notice.text for notice in detected.notices) or "no NVIDIA GPU")
    yield detected
    detected.close()


def nvidia_smi(query: str) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    return subprocess.check_output(command, text=True).strip().splitlines()


def test_facts_are_those_of_nvidia_smi(detected: GpusFound) -> None:
    whole = [gpu.facts for gpu in detected.gpus if gpu.facts.parent_uuid is None]
    ours = [
        f"{facts.index}, {facts.uuid}, {facts.name}, {facts.pci_bus_id}, {facts.driver}" for facts in whole
    ]
    assert ours == nvidia_smi("index,uuid,name,pci.bus_id,driver_version")


def test_used_memory_is_that_of_nvidia_smi(detected: GpusFound) -> None:
    for _ in range(5):
        before = [gpu.read(thorough=False).memory_used_bytes for gpu in detected.gpus]
        shown = [int(line) for line in nvidia_smi("memory.used")]
        after = [gpu.read(thorough=False).memory_used_bytes for gpu in detected.gpus]
        if before == after:
            # nvidia-smi shows whole MiB.
            assert all(abs(used / MIB - mib) < 1 for used, mib in zip(after, shown, strict=True))
            return
    pytest.skip("the memory of this GPU does not stand still")


def test_a_data_center_gpu_gives_its_main_figures(detected: GpusFound) -> None:
    gpu = detected.gpus[0]
    gpu.read(thorough=True)
    time.sleep(0.2)
    reading = gpu.read(thorough=True)
    for figure in ("utilization_ratio", "memory_used_bytes", "temperature_celsius", "power_watts",
                   "sm_clock_hertz", "throttle_reasons", "processes"):  # fmt: skip
        assert getattr(reading, figure) is not None, figure
        assert figure not in gpu.absent()
    assert reading.memory_total_bytes == gpu.facts.memory_total_bytes


def test_memory_of_a_process_is_reported_as_its_own(detected: GpusFound) -> None:
    pytest.importorskip("torch")
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD_MEMORY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        rank = Watched("run", "seg", 0, os.getpid(), "rank")
        sampler = GpuSampler()
        readings = list(sampler.sample([rank]))
        sampler.close()
    finally:
        child.communicate("go\n")
    assert len([reading for reading in readings if isinstance(reading, DeviceFacts)]) == len(detected.gpus)
    owned = [reading for reading in readings if isinstance(reading, Sample) and reading.owner == rank]
    assert owned, "the driver lists no process: it may not, in a container with process numbers of its own"
    assert owned[0].values["gpu/process_memory_bytes"] >= 1 << 30


@pytest.mark.parametrize(
    "visible_devices",
    [None, "", "-1", "NoDevFiles", "0", " 0", "+0", "0gpu", "0,0", "0,-1", "0,99", "0,99,0", "99", "0,x",
     "{uuid}",
     "{short}", "{short},{uuid}", "GPU-", "GPU-ffffffff", "{uuid},0", "0,{uuid}", "{upper}"],
)  # fmt: skip
def test_visible_gpus_are_those_that_cuda_sees(detected: GpusFound, visible_devices: str | None) -> None:
    facts = [gpu.facts for gpu in detected.gpus]
    if any(fact.parent_uuid for fact in facts):
        pytest.skip("slices have UUIDs of their own in CUDA")
    uuid = facts[0].uuid
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    if visible_devices is not None:
        forms = {"uuid": uuid, "short": uuid[:12], "upper": uuid[:4] + uuid[4:].upper()}
        environment["CUDA_VISIBLE_DEVICES"] = visible_devices.format(**forms)
    uuids = subprocess.check_output([sys.executable, "-c", ASK_CUDA], env=environment, text=True).split()
    visible = cuda_devices(environment, facts)
    assert len(visible) == len(uuids)
    for ours, theirs in zip(visible, uuids, strict=True):
        assert ours is None or ours.removeprefix("GPU-").replace("-", "") == theirs


def test_the_driver_lets_itself_be_opened_again_after_it_was_let_go() -> None:
    first = find_gpus()
    if not first.gpus:
        pytest.skip("no GPU")
    first.close()
    second = find_gpus()
    try:
        assert [gpu.facts for gpu in second.gpus]
        assert second.gpus[0].read(thorough=False).memory_used_bytes is not None
    finally:
        second.close()
