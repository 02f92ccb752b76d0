"""What watching adds to training steps of several lengths, on the CPU and on a GPU.

    PYTHONPATH=src python -m benchmarks.step_overhead [--device cuda] [--cases 1ms,5ms,forwards]
        [--with watch,stepscope] [--minutes 5] [--parallel 1] [--processes 1]

A case is a step of about so many milliseconds (1, 2, 5, 20, 100) or one with a hundred calls of the model. On
a GPU there are `host`, with layers so small that the GPU waits for the host, `gpu`, with so much to do that
the host is ahead, as in most trainings, and `forwards`.

`watch` is what `watch` and `batches` add, and is held against the bound of 0.5%; `stepscope` logs the loss
of every step as well. Each contender trains a model of its own, which is watched all the time, as in a real
run. Contenders take turns with blocks of about 10 ms, in random order, so that a machine that becomes slower
or faster does so for all of them; stepscope's clocks stand still while it is another's turn. Blocks of two
seconds make a round, in which their sums are compared, no step left out, with those of the unwatched loop:
the plain one, which trains twice as much, or, for Lightning's monitors, that of its Trainer. All models share
their weights, and after each round they are built again, so that a place in memory does not count; the first
blocks after that warm up.

On the CPU the time is that of the training thread on its processor, because all that watching adds there is
work, and other programs do not count; on a GPU it is the clock on the wall. Of the rounds' ratios the
pseudo-median counts (Hodges and Lehmann's: the median of the means of all pairs), with Wilcoxon's interval of
95%: one slow round moves it no more than it moves a median, and it needs a third fewer rounds. Rounds are
added until the interval of the plain loop against itself is within 0.3% of nothing, or the minutes are over.
With `--processes`, so many processes measure a case at the same time, each on cores of its own, and the
rounds of all of them count: a long step needs many rounds.

Beside others who watch, in an environment of their own:

    python -m venv .bench/step_peers
    .bench/step_peers/bin/pip install -c constraints.txt -e '.[torch]' wandb traceml-ai lightning
    peers=wandb_watch,traceml,lightning,lightning_monitors,lightning_every_step,lightning_with_loss
    .bench/step_peers/bin/python -m benchmarks.step_overhead --cases 5ms --with watch,stepscope,$peers
"""

import argparse
import gc
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from typing import Any

import torch  # noqa: TID253 - it is what is measured
from torch import nn  # noqa: TID253 - nor without this

from benchmarks.step_contenders import CONTENDERS, Contender, Plain, Work

CASES = {
    "cpu": {"1ms": 1.0, "2ms": 2.0, "5ms": 5.0, "20ms": 20.0, "100ms": 100.0, "forwards": 5.0},
    "cuda": {"host": 5.0, "gpu": 40.0, "forwards": 20.0},
}
"""Cases by device, with the length of their steps in milliseconds."""

BOUND = 0.005
NOISE = 0.003
BLOCK_S = 0.01
MIN_STEPS = {"gpu": 5}
"""Steps of a block, at least: after it the host waits for a GPU, which it would otherwise be ahead of."""
ROUND_S = 2.0
"""Time of each contender in a round."""
WARM_UP_S = 0.5
MIN_ROUNDS = 10
ROUNDS_WITH_A_MODEL = 1
"""Rounds with the same models would share a place in memory, and so not be independent."""
FORWARDS = 100
SIZES = {"gpu": (4096, 4096), "forwards": (64, 8), "1ms": (128, 64), "100ms": (1024, 128)}
"""Width of a layer and rows of a batch, where they are not 256 and 64."""


def main() -> int:
    parser = argparse.ArgumentParser(description="What watching adds to a training step.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cases", help="those of the device, with commas between; all unless given")
    parser.add_argument("--with", dest="names", default="watch,stepscope")
    parser.add_argument("--minutes", type=float, default=5.0, help="the most that a case may take")
    parser.add_argument(
        "--parallel", type=int, default=1, help="cases at a time, each in a process of its own"
    )
    parser.add_argument("--processes", type=int, default=1, help="those that measure a case together")
    parser.add_argument("--json", action="store_true", help="print the ratios of all rounds instead")
    options = parser.parse_args()
    cases = (options.cases or ",".join(CASES[options.device])).split(",")
    if len(cases) > 1:
        return measure_apart(cases, options)
    if options.processes > 1:
        return 0 if judge(measure_together(cases[0], options)) else 1
    torch.set_num_threads(1)
    measured = measure(cases[0], options)
    if options.json:
        print(json.dumps(measured))
        return 0
    return 0 if judge([measured]) else 1


def command_of(case: str, options: argparse.Namespace) -> list[str]:
    """Measures one case with these options."""
    return [
        *(sys.executable, "-m", "benchmarks.step_overhead", "--device", options.device, "--cases", case),
        *("--with", options.names, "--minutes", str(options.minutes)),
    ]


def measure_apart(cases: list[str], options: argparse.Namespace) -> int:
    """Measures each case in a process of its own."""
    failed = 0
    for first in range(0, len(cases), options.parallel):
        running = [
            subprocess.Popen(
                [*command_of(case, options), "--processes", str(options.processes)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for case in cases[first : first + options.parallel]
        ]
        for process in running:
            print(process.communicate()[0], end="", flush=True)
            failed |= process.returncode
    return failed


def measure_together(case: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures a case in several processes, each on its share of the cores."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // options.processes)
    command = [*command_of(case, options), "--json"]
    running = []
    for number in range(options.processes):
        first = number * share % len(cores)
        os.sched_setaffinity(0, cores[first : first + share])  # a process inherits them
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    os.sched_setaffinity(0, cores)
    return [json.loads(process.communicate()[0]) for process in running]


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measures what each contender adds, round by round."""
    task = Task(options.device, case)
    names = ["nothing", *(name for name in options.names.split(",") if name != "nothing")]
    with tempfile.TemporaryDirectory() as folder:
        contenders = [CONTENDERS[name](folder) for name in names]
        bases = {name: CONTENDERS[name](folder) for name in {contender.base for contender in contenders}}
        ratios = compare(task, contenders, bases, 60 * options.minutes)
        for contender in (*contenders, *bases.values()):
            contender.finish()
    return {
        "case": f"{options.device} {case}: a step takes {task.step_s * 1e3:.2f} ms ({task.layers} layers)",
        "block": f"{ROUND_S:g} s in blocks of {task.steps} steps",
        "labels": {contender.name: label(contender) for contender in contenders},
        "ratios": ratios,
    }


def judge(measured: list[dict[str, Any]]) -> bool:
    """Prints what each contender adds; whether `watch` keeps to its bound."""
    first = measured[0]
    ratios = {
        name: [ratio for part in measured for ratio in part["ratios"][name]] for name in first["ratios"]
    }
    together = f", in {len(measured)} processes" if len(measured) > 1 else ""
    print(f"{first['case']}; {len(ratios['nothing'])} rounds of {first['block']}{together}")
    for name, text in first["labels"].items():
        middle, low, high = center(ratios[name])
        print(f"  {text:24} {middle:+.2%}, 95% from {low:+.2%} to {high:+.2%}")
    return "watch" not in ratios or keeps_to_bound(ratios)


def keeps_to_bound(ratios: dict[str, list[float]]) -> bool:
    """Says whether `watch` keeps to its bound, as far as the noise lets that be told."""
    noise = noise_of(ratios["nothing"])
    is_kept = noise <= NOISE and center(ratios["watch"])[0] <= BOUND + noise
    if noise > NOISE:
        print(f"  not decided: the loop against itself reads up to {noise:.2%}")
    else:
        print(f"  {'within' if is_kept else 'BEYOND'} the bound of {BOUND:.1%} and {noise:.2%} of noise")
    return is_kept


class Task:
    """A model sized so that a step takes about so long, and its data."""

    def __init__(self, device: str, case: str) -> None:
        wanted_s = CASES[device][case] / 1e3
        self.device = device
        self.forwards = FORWARDS if case == "forwards" else 1
        self.width, rows = SIZES.get(case, (256, 64))
        batches = [torch.randn(rows, self.width) for _ in range(8)]
        self.batches = [batch.pin_memory() for batch in batches] if device == "cuda" else batches
        self.layers = 1 if case == "forwards" else 4
        self.step_s = wanted_s
        self.weights: list[torch.Tensor] = []
        """What the models of all contenders share, so that none has a better place in memory."""
        self.steps = 1
        self._measure()
        for _ in range(5):
            wanted = max(1, round(self.layers * wanted_s / self.step_s))
            if case == "forwards" or abs(wanted - self.layers) <= 0.05 * self.layers:
                break
            self.layers, self.weights = wanted, []
            self._measure()
        self.steps = max(MIN_STEPS.get(case, 1), round(BLOCK_S / self.step_s))
        """Steps in a block."""

    def _measure(self) -> None:
        training, blocks = Training(self, Plain("")), 40
        for _ in range(blocks):
            training.block()
        self.step_s = statistics.fmean(training.block() for _ in range(blocks))


class Training:
    """A model of its own for one contender, from when it begins to watch it."""

    def __init__(self, task: Task, contender: Contender) -> None:
        self._task, self._contender = task, contender
        width = task.width
        parts = [part for _ in range(task.layers) for part in (nn.Linear(width, width), nn.ReLU())]
        self._model = nn.Sequential(*parts).to(task.device)
        if not task.weights:
            task.weights = [parameter.data for parameter in self._model.parameters()]
        for one, weights in zip(self._model.parameters(), task.weights, strict=True):
            one.data = weights
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        contender.begin(self._model, self._optimizer)
        work = Work(task.batches, task.steps, task.device, task.forwards)
        self._blocks = contender.blocks(self._model, self._optimizer, work)

    def block(self) -> float:
        """Seconds a step takes."""
        took = next(self._blocks)
        return (took.wall_s if self._task.device == "cuda" else took.thread_s) / self._task.steps

    def end(self) -> None:
        """The contender is done with this model."""
        self._blocks.close()
        self._contender.end()


def compare(
    task: Task, contenders: list[Contender], bases: dict[str, Contender], most_s: float
) -> dict[str, list[float]]:
    """By what share of the unwatched step each makes it longer, round by round."""
    ratios: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    order = [*bases.values(), *contenders]
    began = time.perf_counter()
    while not is_enough(ratios["nothing"]) and time.perf_counter() - began < most_s:
        random.shuffle(order)
        task.weights = []
        trainings = {id(contender): Training(task, contender) for contender in order}
        gc.collect()
        gc.freeze()
        take_turns(trainings, WARM_UP_S, task)
        for _ in range(ROUNDS_WITH_A_MODEL):
            took = take_turns(trainings, ROUND_S, task)
            plain = took[id(contenders[0])]
            for contender in contenders:
                base = took[id(bases[contender.base])]
                if contender.base == "nothing" and contender is not contenders[0]:
                    base = (base + plain) / 2
                ratios[contender.name].append(took[id(contender)] / base - 1)
        gc.unfreeze()
        for training in trainings.values():
            training.end()
    return ratios


def take_turns(trainings: dict[int, Training], for_s: float, task: Task) -> dict[int, float]:
    """What the blocks of each contender took together, in so many seconds of each."""
    took = dict.fromkeys(trainings, 0.0)
    for _ in range(max(1, round(for_s / (task.steps * task.step_s)))):
        for identity in random.sample(list(trainings), k=len(trainings)):
            took[identity] += trainings[identity].block()
    return took


def is_enough(ratios: list[float]) -> bool:
    """Whether the loop against itself reads near enough to nothing."""
    return len(ratios) >= MIN_ROUNDS and noise_of(ratios) <= NOISE


def noise_of(ratios: list[float]) -> float:
    """How far from nothing the loop against itself may read."""
    _, low, high = center(ratios)
    return max(abs(low), abs(high))


def center(ratios: list[float]) -> tuple[float, float, float]:
    """The pseudo-median of the rounds, and the interval it is in with 95%."""
    rounds = len(ratios)
    means = sorted((a + b) / 2 for at, a in enumerate(ratios) for b in ratios[at:])
    aside = 1.96 * math.sqrt(rounds * (rounds + 1) * (2 * rounds + 1) / 24)
    outside = max(0, math.floor(len(means) / 2 - aside))
    return statistics.median(means), means[outside], means[-1 - outside]


def label(contender: Contender) -> str:
    """The name, and the version of what is watching where it is somebody else's."""
    return f"{contender.name} {version(contender.package)}" if contender.package else contender.name


if __name__ == "__main__":
    sys.exit(main())
