"""All cases by name: faults of input, program, learning and ranks, pairs of faults, and healthy runs."""

from zoo.case import Case
from zoo.catalogue import healthy, input_faults, learning_faults, pairs, program_faults, rank_faults

CASES: dict[str, Case] = {
    case.name: case
    for cases in (
        input_faults.CASES,
        program_faults.CASES,
        learning_faults.CASES,
        rank_faults.CASES,
        pairs.CASES,
        healthy.CASES,
    )
    for case in cases
}

LEFT_TO_TESTS = (
    "thermal slowdown and lower clocks of a GPU",
    "a PCI Express link of an older generation under load",
    "memory errors of a GPU in the kernel's log",
    "processor quota of a container",
    "memory limit of a container",
    "a disk with room for two checkpoints",
    "hours without a checkpoint",
    "a clock that jumps back by an hour",
)
"""Faults of scripted devices, disks and clocks: windows in tests/detectors, without a training."""
