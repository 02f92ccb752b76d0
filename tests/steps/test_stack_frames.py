"""A stack is read as the line of the user's code that runs, what it calls, and in which phase."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from stepscope.steps.evidence.stack_counts import MAX_LINES, StackCounts
from stepscope.steps.evidence.stack_frames import StackReader, StackSample

torch = pytest.importorskip("torch")

READER = StackReader()


@contextlib.contextmanager
def running(function: Callable[[Callable[[], Any]], Any]) -> Iterator[int]:
    """A thread that is in the function it passes to this one."""
    reached, leave = threading.Event(), threading.Event()

    def block(*_: Any, **__: Any) -> None:
        reached.set()
        leave.wait()

    thread = threading.Thread(target=function, args=(block,))
    thread.start()
    reached.wait()
    try:
        yield thread.ident or 0
    finally:
        leave.set()
        thread.join()


def frame_of(thread: int) -> FrameType | None:
    return sys._current_frames().get(thread)


def sample_of(function: Callable[[Callable[[], Any]], Any]) -> StackSample:
    """What the stack of a thread in this function shows."""
    with running(function) as thread:
        sample = READER.read(frame_of(thread))
    assert sample is not None
    return sample


def written(source: str, file: str, module: str) -> dict[str, Any]:
    """Functions as they would be in another file."""
    names: dict[str, Any] = {"__name__": module}
    exec(compile(source, file, "exec"), names)
    return names


CALLS = "def call(function, *arguments):\n    return function(*arguments)\n"
GENERATES = "def call(function):\n    function()\n    yield\n"


def library(module: str, source: str = CALLS) -> Callable[..., Any]:
    """A function of an installed library."""
    file = f"/venv/lib/python3.12/site-packages/{module.replace('.', '/')}.py"
    call: Callable[..., Any] = written(source, file, module)["call"]
    return call


def test_the_innermost_line_of_the_user_is_named_with_what_it_calls() -> None:
    def collate(block: Callable[[], None]) -> None:
        library("numpy.core")(block)

    # `block` is of this file as well: it is the line that waits.
    sample = sample_of(collate)
    assert (sample.function, sample.call, sample.phase) == ("block", "threading.wait", "")
    line = sample.line
    with running(collate) as thread:
        frame = frame_of(thread)
        while frame is not None and frame.f_code.co_name != "block":
            frame = frame.f_back
        assert frame is not None
        assert line == frame.f_lineno


def test_a_handler_of_the_user_belongs_to_the_line_that_logs() -> None:
    def train(block: Callable[[], None]) -> None:
        class Remote(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                block()

        log = logging.Logger("training")  # noqa: LOG001 - not one that other tests see
        log.addHandler(Remote())
        log.info("loss")

    sample = sample_of(train)
    assert (sample.function, sample.kind, sample.call) == ("train", "logging", "threading.wait")


def test_a_progress_bar_around_a_loader_is_not_what_takes_the_time() -> None:
    def train(block: Callable[[], None]) -> None:
        for _ in library("tqdm.std", GENERATES)(block):
            pass

    assert sample_of(train).kind == ""


def test_a_progress_bar_that_is_drawn_is_logging() -> None:
    sleep = written("def sleep(block):\n    block()\n", "/venv/site-packages/x.py", "x")["sleep"]

    def train(block: Callable[[], None]) -> None:
        library("tqdm.std")(library("tqdm.utils"), sleep, block)

    assert sample_of(train).kind == "logging"


@pytest.mark.parametrize("module", ["mlflow.pytorch", "wandb.sdk"])
def test_a_tracker_that_wraps_the_whole_training_is_not_logging(module: str) -> None:
    def train(block: Callable[[], None]) -> None:
        library(module)(library("torch.nn.modules.module"), block)

    sample = sample_of(train)
    assert (sample.kind, sample.phase) == ("", "forward")


@pytest.mark.parametrize(
    ("modules", "phase"),
    [
        (("torch.utils.data.dataloader",), "data"),
        (("torch.nn.modules.module",), "forward"),
        (("torch.autograd",), "backward"),
        # What an optimizer calls is its own work, or the closure that it was given.
        (("torch.optim.adam", "torch.utils._foreach_utils"), "optimizer"),
        (("torch.optim.adam",), "other"),
        (("torch.optim.adam", "lightning.pytorch.loops.optimization.automatic"), "other"),
        (("torch.serialization",), "checkpoint"),
        # The transform of a data set may be a module, and an optimizer may call the model.
        (("torch.utils.data._utils.fetch", "torch.nn.modules.module"), "data"),
        (("torch.optim.optimizer", "torch.nn.modules.module"), "forward"),
        (("torch.nn.modules.module", "torch._inductor.compile_fx"), "compile"),
        (("torch.autograd.function",), ""),
        (("numpy.core",), ""),
    ],
)
def test_the_phase_is_that_of_the_functions_around(modules: tuple[str, ...], phase: str) -> None:
    def train(block: Callable[[], None]) -> None:
        functions = [library(module) for module in modules]
        functions[0](*functions[1:], block)

    assert sample_of(train).phase == phase


def test_a_real_loader_a_real_model_and_a_real_backward_pass_are_known() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any, block: Callable[[], None]) -> Any:
            block()
            return x

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, block: Callable[[], None]) -> Any:
            ctx.block = block
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            ctx.block()
            return gradient, None

    class Data(torch.utils.data.Dataset[int]):
        def __init__(self, block: Callable[[], None]) -> None:
            self.block = block

        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            self.block()
            return index

    assert sample_of(lambda block: Model()(1, block)).phase == "forward"
    x = torch.ones(1, requires_grad=True)
    assert sample_of(lambda block: Slow.apply(x, block).sum().backward()).phase == "backward"
    assert sample_of(lambda block: list(torch.utils.data.DataLoader(Data(block)))).phase == "data"


def test_the_step_of_an_optimizer_of_the_user_is_the_optimizers_phase() -> None:
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters: Any, block: Callable[[], None]) -> None:
            super().__init__(parameters, {})
            self.block = block

        def step(self, closure: Any = None) -> None:
            self.block()

    parameter = torch.nn.Parameter(torch.ones(1))
    assert sample_of(lambda block: Own([parameter], block).step()).phase == "optimizer"
    closure = torch.optim.SGD([parameter], lr=0.1).step
    assert sample_of(lambda block: closure(lambda: block() or torch.ones(1))).phase == "other"


@pytest.mark.parametrize(
    "file",
    [
        "<string>",
        "<stdin>",
        "<ipython-input-3-0a1>",
        "/home/ö/обучение.py",
        "a\nb.py",
        "\udcff.py",
        "",
        "x" * 5000,
    ],
)
def test_any_file_name_is_the_users(file: str) -> None:
    call = written("def call(block):\n    block()\n", file, "__main__")["call"]
    with running(call) as thread:
        frame = frame_of(thread)
        while frame is not None and frame.f_code.co_name != "call":
            frame = frame.f_back
        sample = READER.read(frame)
    assert sample is not None
    assert (sample.file, sample.line) == (file, 2)
    counts = StackCounts()
    counts.add(sample)
    [line] = counts.fields()["lines"]
    assert line["place"].endswith("in call")
    assert "\n" not in line["place"]
    assert len(line["place"]) < 300


def test_a_program_of_installed_packages_alone_is_named_by_its_outermost_line() -> None:
    outer, inner = library("trainer.main"), library("trainer.loop")
    with running(lambda block: outer(inner, block)) as thread:
        frame = frame_of(thread)
        while frame is not None and frame.f_code.co_filename.endswith("loop.py") is False:
            frame = frame.f_back
        assert frame is not None
        # Read as if the thread had begun there: the test's own lines are the user's.
        sample = StackReader().read(frame)
    assert sample is not None
    assert sample.call == "trainer.loop.call"


def test_no_object_of_the_training_is_kept_alive() -> None:
    class Tensor:
        pass

    gone: list[weakref.ref[Tensor]] = []

    def train(block: Callable[[], None]) -> None:
        tensor = Tensor()
        gone.append(weakref.ref(tensor))
        block()

    reader, counts = StackReader(), StackCounts()
    with running(train) as thread:
        sample = reader.read(frame_of(thread))
        assert sample is not None
        counts.add(sample)
    assert gone[0]() is None  # without a collection


def test_a_notebook_between_two_cells_is_idle() -> None:
    # A generator that is not running has no outer frame, as if the stack were its own.
    paused = library("selectors", "def select():\n    yield\ncall = select\n")()
    next(paused)
    sample = StackReader().read(paused.gi_frame)
    assert sample is not None
    assert sample.kind == "idle"


def test_an_empty_stack_is_no_sample() -> None:
    assert READER.read(None) is None


def test_an_event_has_few_lines_however_many_were_found() -> None:
    counts = StackCounts()
    for number in range(10_000):
        counts.add(StackSample("other", f"/a/b{number}.py", number, "f" * 500, "g" * 500, ""))
    fields = counts.fields()
    assert fields["samples"] == 10_000
    assert len(fields["lines"]) == MAX_LINES
    assert fields["more"] == 10_000 - MAX_LINES
    assert len(repr(fields)) < 10_000


@pytest.mark.parametrize(
    ("source", "kind", "with_gpu"),
    [
        ("time.sleep(4)", "sleep", "sleep"),
        ("print(step, loss)", "logging", "logging"),
        ("file.write(line)", "logging", "logging"),
        ("total += loss.item()", "", "sync"),
        ("print(loss.item())", "logging", "sync"),
        ("blueprint(x)", "", ""),
        ("y = x + 1", "", ""),
    ],
)
def test_what_a_line_calls_in_c_is_read_from_its_source(
    tmp_path: Any, source: str, kind: str, with_gpu: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"# a script\n{source}\n")
    counts = StackCounts()
    counts.add(StackSample("other", str(script), 2, "<module>", "", ""))
    assert counts.fields()["lines"][0] == {
        "phase": "other", "place": "train.py:2", "call": "", "kind": kind, "samples": 1,
    }  # fmt: skip
    assert counts.fields(has_gpu=True)["lines"][0]["kind"] == with_gpu
