"""Reads from the stack of a thread which line of the user's code is running, and for what."""

from __future__ import annotations

import gc
import os.path
import sys
import sysconfig
from typing import TYPE_CHECKING, NamedTuple

from stepscope.schema.keys import PHASES
from stepscope.steps.phase_timer import BACKWARD, CHECKPOINT, DATA, FORWARD, OPTIMIZER, OTHER

if TYPE_CHECKING:
    from types import FrameType

MAX_DEPTH = 200
"""Frames that are read of a stack, from its inner end."""

MAX_FILES = 10_000
"""Files of which it is remembered what they are."""

IDLE = "idle"
"""The kind of a sample in which no code of the user runs."""

COMPILE = "compile"
"""What a thread does that compiles; not a phase of a step."""

_PHASES = {
    "torch.autograd": PHASES[BACKWARD],
    "torch.autograd.graph": PHASES[BACKWARD],
    "torch.nn.modules.module": PHASES[FORWARD],
    "torch.serialization": PHASES[CHECKPOINT],
    "torch._dynamo.convert_frame": COMPILE,
    "torch._inductor.compile_fx": COMPILE,
}
"""Modules whose functions belong to a phase, as all that they call."""

_PACKAGE_PHASES = {"torch.utils.data": PHASES[DATA], "torch.optim": PHASES[OPTIMIZER]}
"""The same for all modules of a package."""

_KIND_OF = {
    "logging": (
        "logging", "loguru", "structlog", "tqdm", "rich", "wandb", "mlflow", "tensorboard", "tensorboardX",
        "comet_ml", "neptune", "aim", "swanlab", "trackio", "json", "csv", "torch.utils.tensorboard",
        "lightning.pytorch.loggers", "lightning.fabric.loggers", "pytorch_lightning.loggers",
        "transformers.integrations",
    ),
    "network": ("requests", "urllib", "urllib3", "http", "httpx", "aiohttp", "socket", "ssl", "botocore"),
    "plot": ("matplotlib", "plotly", "seaborn"),
    "subprocess": ("subprocess",),
}  # fmt: skip
"""What functions of these modules are called for, in a loop."""

_KINDS = {module: kind for kind, modules in _KIND_OF.items() for module in modules}

_LIBRARIES = frozenset({"stepscope", "torch", *(name for name in _KINDS if "." not in name)})
"""Packages that are not the user's code, also if they are installed from their sources."""

_FOLDERS = tuple(
    {
        os.path.join(os.path.realpath(path), "")  # noqa: PTH118 - compared as text
        for path in (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
        if path
    }
)
_PACKAGES = ("/site-packages/", "/dist-packages/")
_GENERATED = ("<frozen ", "<eval_with_key", "<__array_function__", "<attrs generated")
"""Beginnings of the names of code that no file has, and no user has written."""

CO_GENERATOR = 0x20
"""Flag of the code of generators."""


class _File(NamedTuple):
    """What is known of a file with Python code."""

    is_user: bool
    module: str
    phase: str
    """The phase that its functions belong to; empty for most."""
    kind: str
    """What its functions are called for; empty for most."""


class StackSample(NamedTuple):
    """What a thread was doing at one moment."""

    phase: str
    """As the stack shows it; empty if it does not."""
    file: str
    line: int
    function: str
    """The line of the user's code that runs, or has called what runs."""
    call: str
    """The innermost function, if it is another one."""
    kind: str
    """What it was called for, such as logging; empty if that is not known."""


class StackReader:
    """Reads stacks, and remembers what each file is. It keeps no frame, and no object of the training."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}

    def read(self, frame: FrameType | None) -> StackSample | None:
        """What a thread with this innermost frame is doing; None for an empty stack."""
        if frame is None:
            return None
        file, code = self._file(frame), frame.f_code
        call = code.co_name if file.is_user else f"{file.module}.{code.co_name}"
        user = outer = None
        is_innermost = False
        phase, kind, is_training = "", "", False
        depth, is_called_back = 0, False
        while frame is not None and depth < MAX_DEPTH:
            file, code = self._file(frame), frame.f_code
            if file.phase:
                inner = phase or (PHASES[OTHER] if is_called_back else "")
                phase, is_training = _outer_phase(inner, file.phase), True
            elif file.kind and not is_training and not code.co_flags & CO_GENERATOR:
                # A progress bar around a loader is a generator: it only passes batches on. What a handler of
                # the user does belongs to the line that logs.
                kind, user = (file.kind if kind != "logging" else kind), None
            if file.is_user and user is None:
                is_innermost = depth == 0
                user = (code.co_filename, frame.f_lineno or 0, code.co_name)
            elif not file.module.startswith(("runpy", "threading")):
                outer = (code.co_filename, frame.f_lineno or 0, code.co_name)
            # What an optimizer calls of others is its closure, unless it is the step of their own optimizer.
            is_called_back = not file.module.startswith("torch") and code.co_name != "step"
            frame = frame.f_back
            depth += 1
        if user is None and call == "selectors.select":
            kind = IDLE  # a notebook that waits for the next cell
        return StackSample(phase, *(user or outer or ("", 0, "")), "" if is_innermost else call, kind)

    def _file(self, frame: FrameType) -> _File:
        name = frame.f_code.co_filename
        file = self._files.get(name)
        if file is None:
            module = dict.get(frame.f_globals, "__name__")
            file = _described(name, module if isinstance(module, str) else "")
            if len(self._files) < MAX_FILES:
                self._files[name] = file
        return file


def _outer_phase(inner: str, outer: str) -> str:
    """The phase of a function of one phase that was called in another one.

    A transform of a data set may be a module, which is no forward pass. The closure of an optimizer calls the
    model, which is no part of the optimizer's work.
    """
    if inner == PHASES[OTHER] and outer != PHASES[OPTIMIZER]:
        return outer
    return inner if inner == COMPILE or (inner and outer == PHASES[OPTIMIZER]) else outer


def can_sample() -> bool:
    """Whether stacks can be read: without the interpreter lock, a frame that is read may be running."""
    is_locked = getattr(sys, "_is_gil_enabled", None)
    return is_locked is None or is_locked()


def frame_of(thread: int) -> FrameType | None:
    """The innermost frame of a thread; None if it has ended. A caller must not keep it."""
    # In Python 3.11, a garbage collection that begins within this call can stop all threads for ever (CPython
    # issue 106883). No other thread runs while they are off: the interpreter lock is held for at least 5 ms.
    if sys.version_info[:2] != (3, 11) or not gc.isenabled():
        return sys._current_frames().get(thread)  # noqa: SLF001 - its only name
    gc.disable()
    try:
        return sys._current_frames().get(thread)  # noqa: SLF001
    finally:
        gc.enable()


def _described(filename: str, module: str) -> _File:
    top = module.partition(".")[0]
    is_library = (
        top in _LIBRARIES
        or filename.startswith((*_GENERATED, *_FOLDERS))
        or any(folder in filename for folder in _PACKAGES)
    )
    if not is_library:
        return _File(is_user=True, module=module, phase="", kind="")
    parts = module.split(".")
    packages = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    kind = next((_KINDS[name] for name in packages if name in _KINDS), "")
    phase = next((_PACKAGE_PHASES[name] for name in packages if name in _PACKAGE_PHASES), "")
    return _File(is_user=False, module=module, phase=_PHASES.get(module, phase), kind=kind)
