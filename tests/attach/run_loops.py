"""Runs unedited scripts of `loops`, each in a process of its own, and prints what each has computed.

PyTorch is imported once, before the processes are forked: importing it takes longer than all scripts.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import json
import os
import runpy
import signal
import sys
from pathlib import Path

FRAMEWORKS = {"accelerate": "accelerate", "transformers": "transformers.trainer", "lightning": "lightning"}
"""Frameworks by the first word of a script's name; they take as long to import."""

LOOPS = Path(__file__).parent / "loops"


def outcome(script: dict[str, object]) -> dict[str, object]:
    """The losses and weights of a script, exact to the bit, and the state of the random numbers."""
    import torch

    models = script.get("models") or [script["model"]]
    digest = hashlib.sha256()
    for model in models:
        for value in model.state_dict().values():
            digest.update(value.detach().cpu().numpy().tobytes())
    digest.update(torch.get_rng_state().numpy().tobytes())
    return {
        "steps": script["STEPS"],
        "losses": [float(loss).hex() for loss in script["losses"]],
        "digest": digest.hexdigest(),
    }


def run(name: str) -> None:
    """Runs a script in a forked process, and prints its name and outcome as one line of JSON."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.environ["STEPSCOPE_RUN"] = name
    sys.argv = [f"{name}.py"]
    script = runpy.run_path(str(LOOPS / f"{name}.py"), run_name="__main__")
    print(json.dumps({"name": name, **outcome(script)}), flush=True)
    atexit._run_exitfuncs()
    os.kill(os.getpid(), signal.SIGKILL)  # to delete all objects of PyTorch takes longer than the script


if __name__ == "__main__":
    import torch._dynamo  # noqa: F401 - for all scripts: the first optimizer of each would import it

    for framework in {name.partition("_")[0] for name in sys.argv[1:]} & FRAMEWORKS.keys():
        importlib.import_module(FRAMEWORKS[framework])
    if any(type(finder).__name__ == "ImportWatcher" for finder in sys.meta_path):
        import stepscope.attach.attached_training  # noqa: F401 - as for PyTorch
    for name in sys.argv[1:]:
        run(name)
