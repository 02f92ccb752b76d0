"""Which physical GPU a process means by cuda:0, for every form of the variables that decide it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepscope.devices.gpu import GpuFacts
from stepscope.devices.gpu_driver import visible_gpus

A, B, C = "GPU-aaaa1111-0", "GPU-aaaa2222-0", "GPU-cccc3333-0"


def nvidia(uuid: str, index: int, name: str = "H200", **more) -> GpuFacts:
    return GpuFacts(uuid, index, name, "NVIDIA", pci_bus_id=f"00000000:{index:02X}:00.0", **more)


ALIKE = [nvidia(A, 0), nvidia(B, 1), nvidia(C, 2)]
UNLIKE = [nvidia(A, 0, "T4"), nvidia(B, 1, "H200"), nvidia(C, 2, "H200")]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, (A, B, C)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("none", ()),
        ("0", (A,)),
        ("2,0", (C, A)),
        ("0,1,2", (A, B, C)),
        (" 1 , 2", (B, C)),
        ("+1,-0", (B, A)),
        ("0,2,-1,1", (A, C)),
        ("0,7,1", (A,)),
        ("7", ()),
        ("0,,1", (A,)),
        ("0,x,1", (A,)),
        ("1gpu2,2ampere", (B, C)),
        ("0,0", ()),
        ("0,1,0", ()),
        ("0,-1,0", (A,)),
        ("0,7,0", (A,)),
        (A, (A,)),
        (f"{C},{A}", (C, A)),
        ("GPU-cccc", (C,)),
        ("GPU-aaaa1", (A,)),
        ("GPU-CCCC3333", (C,)),
        ("GPU-aaaa", ()),
        (f"{C},GPU-aaaa", (C,)),
        ("GPU-", ()),
        ("GPU-ffff", ()),
        (f"{A},GPU-ffff,{B}", (A,)),
        (f"{A},{A}", ()),
        (f"{A},GPU-aaaa1", ()),
        (f"{A},1", (A,)),
        (f"1,{A}", (B,)),
        (f"{A}, {B}", (A,)),
        ("MIG-1111", ()),
        (f"0,MIG-{A}/1/0", (A,)),
    ],
)
def test_cuda_sees_what_its_list_names_until_an_entry_means_nothing(variable, expected):
    environment = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    assert visible_gpus(environment, ALIKE) == expected


@pytest.mark.parametrize(
    ("order", "variable", "expected"),
    [
        (None, None, (None, None, None)),
        ("FASTEST_FIRST", None, (None, None, None)),
        (None, "0,2", (None, None)),
        (None, "0,0", ()),
        (None, "5", ()),
        (None, f"{B},{A}", (B, A)),
        ("PCI_BUS_ID", None, (A, B, C)),
        ("PCI_BUS_ID", "2,0", (C, A)),
        ("pci_bus_id", None, (None, None, None)),
    ],
)
def test_of_unlike_gpus_only_cuda_knows_which_is_the_fastest(order, variable, expected):
    given = {"CUDA_DEVICE_ORDER": order, "CUDA_VISIBLE_DEVICES": variable}
    assert (
        visible_gpus({name: value for name, value in given.items() if value is not None}, UNLIKE) == expected
    )


def test_one_gpu_is_the_first_in_any_order():
    assert visible_gpus({}, [nvidia(A, 0)]) == (A,)


def test_the_bus_decides_and_not_the_order_of_the_list():
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}, ALIKE[::-1]) == (A, B)


def test_cards_of_one_name_and_different_memory_are_not_alike():
    gpus = [replace(gpu, memory_total_bytes=size) for gpu, size in zip(ALIKE, (40, 80, 80), strict=True)]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}, gpus) == (None,)


def a_slice(uuid: str, parent: str, instance: int) -> GpuFacts:
    return nvidia(uuid, 0, "H200 MIG 1g.18gb", parent_uuid=parent, gpu_instance=instance, compute_instance=0)


S1, S2, S3 = "MIG-1111-0", "MIG-2222-0", "MIG-3333-0"
SLICED = [*ALIKE, a_slice(S1, A, 7), a_slice(S2, A, 8), a_slice(S3, B, 7)]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (S1, (S1,)),
        ("MIG-2", (S2,)),
        ("MIG-", ()),
        ("MIG-9999", ()),
        (f"{S2},{S1}", (S2,)),
        (f"{S1},{S1}", ()),
        (f"MIG-{A}/8/0", (S2,)),
        ("MIG-GPU-aaaa2/7/0", (S3,)),
        (f"MIG-{A}/9/0", ()),
        (f"MIG-{A}/8", ()),
        (f"MIG-{A}/x/0", ()),
        ("MIG-GPU-aaaa/7/0", ()),
        ("1", (S3,)),
        ("0", (None,)),
        (B, (S3,)),
        ("2", (C,)),
        (C, (C,)),
        ("1,2", (S3,)),
        ("2,1", (None,)),
        (None, (None,)),
    ],
)
def test_a_process_sees_one_slice_alone(variable, expected):
    environment = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    assert visible_gpus(environment, SLICED) == expected


def amd(uuid: str, index: int, place: int | None) -> GpuFacts:
    return GpuFacts(uuid, index, "MI300X", "AMD", runtime_index=place)


X, Y, Z = "GPU-aa11", "GPU-aa22", "GPU-cc33"
ROCM = [amd(Y, 0, 1), amd(X, 1, 0), amd(Z, 2, 2)]


@pytest.mark.parametrize(
    ("rocr", "hip", "cuda", "expected"),
    [
        (None, None, None, (X, Y, Z)),
        ("", None, None, ()),
        ("-1", None, None, ()),
        ("2,0", None, None, (Z, X)),
        ("0, 1", None, None, (X, Y)),
        ("0,9,1", None, None, (X,)),
        ("0,0,1", None, None, (X,)),
        ("0,1x", None, None, (X,)),
        (f"2,{X}", None, None, (Z, X)),
        (f"0,{X},1", None, None, (X,)),
        ("GPU-cc", None, None, (Z,)),
        ("GPU-AA22", None, None, (Y,)),
        ("GPU-aa", None, None, ()),
        (None, "1", None, (Y,)),
        (None, "2,2,0", None, (Z, X)),
        (None, "0,9,1", None, (X,)),
        (None, "01", None, ()),
        (None, "0, 1", None, (X,)),
        (None, "", None, ()),
        (None, None, "1,0", (Y, X)),
        (None, "2", "0", (Z,)),
        (None, "", "0", ()),
        ("2,1", "1", None, (Y,)),
        ("2,1", "2", None, ()),
        ("2,1", None, "0", (Z,)),
        (None, Y, None, (Y,)),
        ("2", Y, None, ()),
    ],
)
def test_hip_counts_what_rocr_has_left(rocr, hip, cuda, expected):
    given = {"ROCR_VISIBLE_DEVICES": rocr, "HIP_VISIBLE_DEVICES": hip, "CUDA_VISIBLE_DEVICES": cuda}
    assert visible_gpus({name: value for name, value in given.items() if value is not None}, ROCM) == expected


def test_without_the_order_of_hip_only_uuids_are_certain():
    gpus = [replace(gpu, runtime_index=None) for gpu in ROCM]
    assert visible_gpus({}, gpus) == (None, None, None)
    assert visible_gpus({"ROCR_VISIBLE_DEVICES": f"{Z},0"}, gpus) == (Z, None)
    assert visible_gpus({}, gpus[:1]) == (Y,)


def test_without_gpus_none_are_visible():
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}, []) == ()
