"""Runs a model or a loader and restores its state: modes, buffers, gradients, random numbers."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def device_of(torch: Any, model: Any) -> Any:
    """The device of a model's first parameter or buffer; the CPU if it has neither."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


@contextlib.contextmanager
def inference_mode(torch: Any, model: Any) -> Iterator[None]:
    """Puts a model into evaluation mode without gradients; restores the mode and buffers of each module."""
    # A frozen script module is always in evaluation mode, and has no attribute for it.
    modes = [(part, part.training) for part in model.modules() if hasattr(part, "training")]
    # Not torch.inference_mode: tensors that a model caches there could not be used in training afterwards.
    with preserved_random_state(device_of(torch, model)), torch.no_grad(), preserved_buffers(model):
        if modes:
            model.eval()
        try:
            yield
        finally:
            for part, was_training in modes:
                part.training = was_training


@contextlib.contextmanager
def preserved_buffers(model: Any) -> Iterator[None]:
    """Restores the buffers that a model changes even in evaluation mode, such as a call counter."""
    torch = sys.modules["torch"]
    kept = [
        (part, name, buffer, buffer.clone())
        for part in model.modules()
        for name, buffer in part.named_buffers(recurse=False)
        # An inference tensor cannot be changed here.
        if not buffer.is_inference()
    ]
    try:
        yield
    finally:
        for part, name, buffer, content in kept:
            # By content: batch normalisation changes its buffers without increasing their version. An
            # unchanged buffer is not written to, because a graph that waits for its backward pass may use it.
            if not torch.equal(buffer, content):
                buffer.copy_(content)
            part._buffers[name] = buffer  # noqa: SLF001 - setattr of a script module refuses


@contextlib.contextmanager
def preserved_random_state(device: Any | None = None) -> Iterator[None]:
    """Restores the random state of Python, and of numpy and torch if they are loaded."""
    with contextlib.ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            stack.callback(numpy_random.set_state, numpy_random.get_state())
        torch = sys.modules.get("torch")
        if torch is not None:
            has_own = device is not None and device.type == "cuda"
            stack.enter_context(torch.random.fork_rng(devices=[device] if has_own else []))
        yield
