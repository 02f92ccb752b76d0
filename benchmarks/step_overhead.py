"""What watching adds to a training step of about five milliseconds, on the CPU and on a GPU.

    PYTHONPATH=src python -m benchmarks.step_overhead [--device cuda] [--rounds 300] [--steps 50]
        [--step-ms 5] [--with stepscope,nothing] [--width 256]

With small layers a GPU waits for the host to launch its kernels, so that all that a host does makes a step
longer. With `--width 2048` the GPU has enough to do and the host is ahead of it, as in most trainings: steps
are then timed by the block, from one synchronisation to the next.

Beside others who watch, in an environment of their own:

    python -m venv .bench/step_peers
    .bench/step_peers/bin/pip install -c constraints.txt -e '.[torch]' wandb traceml-ai lightning
    peers=wandb_watch,traceml,lightning,lightning_monitors,lightning_every_step,lightning_with_loss
    .bench/step_peers/bin/python -m benchmarks.step_overhead --with stepscope,nothing,$peers

In each round every contender has a block of steps, in an order drawn by chance, in one process; each is
compared with the unwatched loop of its own round: the plain one or, for Lightning's monitors, that of its
Trainer. Of a block the first fifth is left out, in which whatever is set up for a block is set up, and so are
steps that took three times the median: the machine did something else. Of the rounds' ratios the median
counts, with an interval of 95 % by drawing rounds again and again. A loop against itself, `nothing` and
`lightning`, shows the noise.
"""

import argparse
import gc
import random
import statistics
import sys
import tempfile
import time
from importlib.metadata import version

import torch  # noqa: TID253 - it is what is measured
from torch import nn  # noqa: TID253 - nor without this

from benchmarks.step_contenders import CONTENDERS, Contender, Plain

AHEAD_FROM = 1024
"""From this width on a GPU takes longer for a step than the host to launch it."""
LEFT_OUT = 0.2
OUTLIER = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description="What watching adds to a training step.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--with", dest="names", default="stepscope,nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training = Training(options.device, options.step_ms / 1e3, options.width)
    print(
        f"{options.device}, torch {torch.__version__}: {training.layers} layers, "
        f"a step takes {training.step_s * 1e3:.2f} ms; {options.rounds} rounds of {options.steps} steps"
    )
    with tempfile.TemporaryDirectory() as folder:
        contenders = [CONTENDERS[name](folder) for name in options.names.split(",")]
        bases = {name: CONTENDERS[name](folder) for name in {contender.base for contender in contenders}}
        ratios = compare(training, contenders, bases, options.rounds, options.steps)
        for contender in (*contenders, *bases.values()):
            contender.finish()
    for contender in contenders:
        print(f"{label(contender):30} {described(ratios[contender.name])}")
    return 0


class Training:
    """A model sized so that a step takes about so long."""

    def __init__(self, device: str, wanted_s: float, width: int) -> None:
        self.device, self.width = device, width
        self._is_ahead = device == "cuda" and width >= AHEAD_FROM
        self.layers = 4
        self.step_s = wanted_s
        for _ in range(5):
            self._build()
            self.block(Plain(""), 40)
            self.step_s = self.block(Plain(""), 80)
            wanted = max(1, round(self.layers * wanted_s / self.step_s))
            if abs(wanted - self.layers) <= 0.03 * self.layers:
                break
            self.layers = wanted

    def _build(self) -> None:
        width = self.width
        parts = [part for _ in range(self.layers) for part in (nn.Linear(width, width), nn.ReLU())]
        self._model = nn.Sequential(*parts).to(self.device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        size = width if self._is_ahead else 64
        batches = [torch.randn(size, width) for _ in range(8)]
        self._batches = [batch.pin_memory() for batch in batches] if self.device == "cuda" else batches

    def block(self, contender: Contender, steps: int) -> float:
        """Seconds a step takes, watched by somebody: the mean of those in which nothing else happened."""
        contender.begin(self._model, self._optimizer)
        gc.collect()
        if self.device == "cuda":
            torch.cuda.synchronize()
        data = [self._batches[step % len(self._batches)] for step in range(steps)]
        began = time.perf_counter()
        took = contender.train(self._model, self._optimizer, data, self.device)
        if self.device == "cuda":
            torch.cuda.synchronize()
        whole_s = time.perf_counter() - began
        contender.end()
        if self._is_ahead:
            return whole_s / steps
        counted = took[int(LEFT_OUT * steps) :]
        limit = OUTLIER * statistics.median(counted)
        return statistics.mean(one for one in counted if one < limit)


def compare(
    training: Training, contenders: list[Contender], bases: dict[str, Contender], rounds: int, steps: int
) -> dict[str, list[float]]:
    """By what share of the unwatched step each makes it longer, round by round."""
    ratios: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for number in range(rounds + 1):
        order = [*bases.values(), *contenders]
        random.shuffle(order)
        took = {id(contender): training.block(contender, steps) for contender in order}
        if number:  # the first one warms up
            for contender in contenders:
                base = took[id(bases[contender.base])]
                ratios[contender.name].append(took[id(contender)] / base - 1)
    return ratios


def label(contender: Contender) -> str:
    """The name, and the version of what is watching where it is somebody else's."""
    return f"{contender.name} {version(contender.package)}" if contender.package else contender.name


def described(ratios: list[float]) -> str:
    """The median and where it lies, in percent."""
    drawn = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    low, high = drawn[50], drawn[-50]
    middle = statistics.median(ratios)
    return f"{middle:+.2%}, 95 % between {low:+.2%} and {high:+.2%}, of {len(ratios)} rounds"


if __name__ == "__main__":
    sys.exit(main())
