"""The plain loop as a program of its own, which does not know that it is watched.

It trains a block for each line of its input, and prints what the block took.
"""

import json
import sys

import torch  # noqa: TID253 - what is watched
from torch import nn  # noqa: TID253 - likewise

from benchmarks.step_contenders import Plain, Took, Work, exclude_pause


class Loop(Plain):
    """The plain loop; where it is watched, our clocks stand still while others train."""

    def resume(self, pause: Took) -> None:
        """Finds the monitor, if there is one."""
        recording = sys.modules.get("stepscope.recorder.recording")
        for monitor in () if recording is None else recording.monitors:
            exclude_pause(monitor, pause)


def main() -> None:
    task = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    width = task["width"]
    parts = [part for _ in range(task["layers"]) for part in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*parts).to(task["device"])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = [torch.randn(task["rows"], width) for _ in range(8)]
    work = Work(data, task["steps"], task["device"], task["forwards"])
    blocks = Loop("").blocks(model, optimizer, work)
    for _ in sys.stdin:
        print(json.dumps(next(blocks)), flush=True)


if __name__ == "__main__":
    main()
