"""Finding GPUs of all makers, and the plain reason where there are none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from stepscope.devices.find_gpus import find_gpus
from stepscope.devices.nvidia.driver import reason_of_nvml
from tests.devices.amd.amdsmi_stand_in import StandInAmdsmi
from tests.devices.nvidia.nvml_stand_in import LOST, Refusal, StandInNvml, an_h200

NOWHERE = Path("/dev/null/nowhere")


def loading(**modules):
    """A loader of these modules alone."""

    def load(name):
        if name not in modules:
            raise ImportError(name)
        if isinstance(modules[name], Exception):
            raise modules[name]
        return modules[name]

    return load


@pytest.fixture
def with_kfd(tmp_path: Path) -> Path:
    """A folder of devices with that of AMD's compute driver."""
    (tmp_path / "kfd").touch()
    return tmp_path


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a driver")
def test_without_a_driver_the_real_library_says_so():
    gpus = find_gpus(dev=NOWHERE)
    assert not gpus.gpus
    (notice,) = gpus.notices
    assert notice.subject == "gpu/nvidia"
    assert "libnvidia-ml.so.1 is missing" in notice.text
    assert "install its driver" in notice.text
    gpus.close()


@pytest.mark.parametrize(
    ("code", "words", "remedy"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "No NVIDIA driver is installed", "--gpus all"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded", "modprobe nvidia"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "may not", "ls -l /dev/nvidia"),
        (pynvml.NVML_ERROR_GPU_NOT_FOUND, "finds no GPU", "dmesg"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "different versions", "Restart"),
        (pynvml.NVML_ERROR_UNKNOWN, "does not answer: Unknown Error", "nvidia-smi"),
    ],
)
def test_each_reason_has_its_sentence_and_its_remedy(code, words, remedy):
    gpus = find_gpus(load=loading(pynvml=StandInNvml(start=Refusal(code))), dev=NOWHERE)
    (notice,) = gpus.notices
    assert words in notice.text
    assert remedy in notice.text
    reason = reason_of_nvml(pynvml, pynvml.NVMLError(code))
    assert notice.text == f"{reason.problem} {reason.remedy}"


def test_a_missing_package_is_distinguished_from_a_missing_driver():
    (notice,) = find_gpus(load=loading(), dev=NOWHERE).notices
    assert "pip install nvidia-ml-py" in notice.text


def test_a_driver_that_shows_no_gpu_is_a_reason_too():
    (notice,) = find_gpus(load=loading(pynvml=StandInNvml()), dev=NOWHERE).notices
    assert "finds no GPU" in notice.text


def test_one_gpu_that_cannot_be_opened_is_named_beside_the_others():
    broken = an_h200(1)
    broken.answers["nvmlDeviceGetUUID"] = LOST
    gpus = find_gpus(load=loading(pynvml=StandInNvml(an_h200(0), broken)), dev=NOWHERE)
    assert [gpu.facts.index for gpu in gpus.gpus] == [0]
    (notice,) = gpus.notices
    assert notice.subject == "gpu/nvidia/GPU 1"
    assert notice.text.startswith("GPU 1 cannot be monitored: GPU is lost.")


def test_gpus_of_two_makers_are_found_together_and_let_go_together(with_kfd):
    nvml, amdsmi = StandInNvml(an_h200()), StandInAmdsmi()
    gpus = find_gpus(load=loading(pynvml=nvml, amdsmi=amdsmi), dev=with_kfd)
    assert [gpu.facts.vendor for gpu in gpus.gpus] == ["NVIDIA", "AMD"]
    assert not gpus.notices
    gpus.close()
    assert (nvml.opened, amdsmi.opened) == (0, 0)


def test_a_host_with_amd_gpus_gets_no_notice_about_nvidia(with_kfd):
    gpus = find_gpus(load=loading(amdsmi=StandInAmdsmi()), dev=with_kfd)
    assert [gpu.facts.vendor for gpu in gpus.gpus] == ["AMD"]
    assert not gpus.notices


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        ({}, "pip install amdsmi"),
        ({"amdsmi": OSError("libamd_smi.so: cannot open")}, "libamd_smi.so: cannot open"),
        ({"amdsmi": StandInAmdsmi(start="DRIVER_NOT_LOADED")}, "modprobe amdgpu"),
        ({"amdsmi": StandInAmdsmi(count=0)}, "--device /dev/kfd"),
    ],
)
def test_an_amd_gpu_that_cannot_be_watched_has_its_reason(with_kfd, modules, words):
    gpus = find_gpus(load=loading(pynvml=StandInNvml(an_h200()), **modules), dev=with_kfd)
    assert [gpu.facts.vendor for gpu in gpus.gpus] == ["NVIDIA"]
    (notice,) = gpus.notices
    assert notice.subject == "gpu/amd"
    assert words in notice.text


def test_looking_for_gpus_loads_neither_torch_nor_pydantic():
    script = (
        "import sys; from stepscope.samplers.gpu import GpuSampler; list(GpuSampler().sample([]));"
        "print({'torch', 'pydantic', 'numpy', 'zstandard', 'psutil'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "set()\n"
