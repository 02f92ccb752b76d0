"""Runs a list of attack cases, collects every fault they find, and reports all of them at the end."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attack.training import end_agents

LOST = "lost silently"
WRONG = "wrong value"
TRACEBACK = "traceback"
OTHER = "other run affected"
HANG = "hang"
UNCLEAR = "unclear error"
FAILED = "training failed"
LEFT_OUT = "not carried out"
BROKEN = "attack broken"
KINDS = (LOST, WRONG, TRACEBACK, OTHER, HANG, UNCLEAR, FAILED, LEFT_OUT, BROKEN)
"""The ways in which a case can fail; the last two say nothing of the product."""

SEED = os.environ.get("ATTACK_SEED", "1")
CASE = os.environ.get("ATTACK_CASE", "")
MAX_LISTED = 150
MAX_SECONDS = 600
"""A sweep takes one or two minutes on two idle cores; where much hangs, the rest is left out and reported."""


@dataclass(frozen=True)
class Fault:
    """One thing that went wrong in a case."""

    kind: str
    text: str


Check = Callable[[random.Random, Path], Iterator[Fault]]


@dataclass(frozen=True)
class Case:
    """One attack: a name that holds all its parameters, and the function that carries it out."""

    name: str
    check: Check


@dataclass(frozen=True)
class Result:
    """What one case found."""

    case: str
    faults: tuple[Fault, ...]
    seconds: float


class Sweep:
    """All cases of one kind of attack."""

    def __init__(self, name: str, folder: Path, record_property: Callable[[str, object], None]) -> None:
        self.name = name
        self._folder = folder
        self._record_property = record_property
        self._give_up_at = time.monotonic() + MAX_SECONDS

    def run(self, cases: Sequence[Case], workers: int = 2) -> None:
        """Carries out every case, then fails with the list of all faults if there was any."""
        chosen = [case for case in cases if CASE in case.name]
        print(f"\nattack on {self.name}: {len(chosen)} cases, ATTACK_SEED={SEED}")
        began = time.monotonic()
        with ThreadPoolExecutor(workers) as pool:
            results = list(pool.map(self._carry_out, range(len(chosen)), chosen))
        counts = Counter(kind for result in results for kind in {fault.kind for fault in result.faults})
        figures = {
            "attack": self.name,
            "seed": SEED,
            "cases": len(results),
            "failed": sum(bool(result.faults) for result in results),
            "seconds": round(time.monotonic() - began),
            **{kind: counts[kind] for kind in KINDS},
        }
        self._record_property("attack", json.dumps(figures))
        failed = [result for result in results if result.faults]
        if failed:
            pytest.fail(self._describe(failed), pytrace=False)

    def _carry_out(self, number: int, case: Case) -> Result:
        if time.monotonic() > self._give_up_at:
            return Result(case.name, (Fault(LEFT_OUT, "the cases before took too long"),), 0.0)
        folder = self._folder / f"{number}"
        folder.mkdir()
        began = time.monotonic()
        try:
            dice = random.Random(f"{SEED}/{self.name}/{case.name}")
            faults = tuple(_up_to_a_hang(case.check(dice, folder)))
        except Exception as error:  # noqa: BLE001 - the other cases still have to be carried out
            faults = (Fault(BROKEN, repr(error)),)
        end_agents(folder)
        if not faults:
            shutil.rmtree(folder, ignore_errors=True)
        return Result(case.name, faults, time.monotonic() - began)

    def _describe(self, failed: Sequence[Result]) -> str:
        lines = [f"{len(failed)} cases failed; repeat one with ATTACK_SEED={SEED} ATTACK_CASE='<its name>'"]
        for result in failed[:MAX_LISTED]:
            lines.append(f"{result.case}  ({result.seconds:.1f} s)")
            lines += [f"    {fault.kind}: {fault.text[:400]}" for fault in result.faults[:6]]
        if len(failed) > MAX_LISTED:
            lines.append(f"and {len(failed) - MAX_LISTED} more")
        return "\n".join(lines)


def _up_to_a_hang(faults: Iterator[Fault]) -> Iterator[Fault]:
    """Stops a case at its first hang: whatever it does next is likely to hang as well."""
    for fault in faults:
        yield fault
        if fault.kind == HANG:
            return


def table(figures: Sequence[dict[str, object]]) -> list[str]:
    """The figures of several sweeps as the lines of a table."""
    columns = ["attack", "seed", "cases", "failed", *KINDS, "seconds"]
    rows = [columns, *([str(row[column]) for column in columns] for row in figures)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
