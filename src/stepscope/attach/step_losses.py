"""Collects the losses that `backward` is called on, until the step that they belong to has ended."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from stepscope.attach.find_models import leaves_of

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DIVISIONS = 3
"""Frameworks divide a loss by the number of accumulated batches, some of them after the script has."""

MAX_LOSSES = 1024
"""Maximum number of losses of a step that are kept: a program that never updates must not fill the memory."""


class StepLosses:
    """The losses of the current step.

    A step has one loss: that of its `backward`, or the mean of several. Losses that a loop divides by the
    number of batches it accumulates are multiplied by it again, once a step has had as many batches.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._losses: list[Any] = []
        self._divisors: list[float | None] = []
        self._had_several = False
        """Whether the last step had several losses."""
        self._last_count = 1
        """The number of losses of the last step."""
        self._accumulated = 0.0
        """The number of batches that the loop accumulates and divides by; 0 while unknown."""
        self._scaled: tuple[weakref.ref[Any], Any] | None = None
        self._in_optimizer = False
        """Whether a loss was added within the current optimizer step."""
        self._newest: Callable[[], Any] = lambda: None
        """A weak reference to the newest loss."""

    def note_scaled(self, scaled: Any, loss: Any) -> None:
        """Notes what a `GradScaler` has multiplied."""
        tensor_type = self._torch.Tensor
        if isinstance(scaled, tensor_type) and isinstance(loss, tensor_type) and scaled is not loss:
            self._scaled = weakref.ref(scaled), loss

    def add(self, tensors: Any, gradients: Any, *, in_optimizer: bool) -> bool:
        """Adds what `backward` is called on, if it is a loss: a single number without a given gradient."""
        loss = tensors[0] if isinstance(tensors, list | tuple) and len(tensors) == 1 else tensors
        if gradients is not None or not isinstance(loss, self._torch.Tensor):
            return False
        if type(loss) is not self._torch.Tensor:
            loss = self._plain(loss)
        if loss is None or loss.numel() != 1:
            return False
        if len(self._losses) >= MAX_LOSSES or (in_optimizer and self._in_optimizer):
            # An optimizer evaluates its closure repeatedly; the first result is the loss of the step.
            return False
        self._in_optimizer = in_optimizer
        if self._scaled is not None and self._scaled[0]() is loss:
            loss = self._scaled[1]
        self._scaled = None
        if loss.is_cuda and self._torch.cuda.is_current_stream_capturing():
            return False  # a copy would become part of the graph
        if loss.is_complex():
            return False
        # Only read where losses are accumulated: what an operation has saved may be costly to read.
        self._divisors.append(_divisor(loss) if self._losses or self._had_several else None)
        # A copy: a program may add to its loss in place, or reduce it over ranks, before the step ends.
        self._losses.append(loss.detach().clone())
        self._newest = weakref.ref(loss)
        return True

    def drop_newest(self) -> None:
        """Drops the loss of a backward pass that has failed: a program may go on with the next batch."""
        del self._losses[-1:], self._divisors[-1:]

    def _plain(self, loss: Any) -> Any:
        """The same tensor without the subclass of a library such as MONAI; None if it is not in one place.

        A subclass with a dispatch of its own, as that of a sharded tensor, would exchange data when read.
        """
        plain = self._torch.Tensor
        if type(loss).__torch_dispatch__ is not plain.__torch_dispatch__:
            return None
        with self._torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - it has no public name
            return loss.as_subclass(plain)

    def keep_step(self) -> None:
        """Drops losses of another training that no step has followed: only the newest belong to this one."""
        del self._losses[: -self._last_count], self._divisors[: -self._last_count]

    def newest_leaves(self) -> dict[int, Any]:
        """The tensors that the newest loss depends on, by their ids; empty if the loss no longer exists."""
        loss = self._newest()
        return {} if loss is None else leaves_of([loss])

    def begin_optimizer_step(self) -> None:
        """Prepares for closures that the optimizer calls."""
        self._in_optimizer = False

    def take(self) -> Any:
        """The loss of the step that has ended: a number, a tensor on a GPU, or None if there is none."""
        losses, divisors = self._losses, self._divisors
        if not losses:
            return None
        self._losses, self._divisors, self._in_optimizer = [], [], False
        self._last_count = count = len(losses)
        self._had_several = count > 1 or bool(self._accumulated)
        if not self._had_several:
            return losses[0]
        if divisors[0] is None and count > 1:
            divisors[0] = divisors[1]
        if count > 1 and all(divisor == count for divisor in divisors):
            self._accumulated = float(count)
        factors = [self._accumulated if divisor == self._accumulated else 1.0 for divisor in divisors]
        if losses[0].is_cuda:
            scaled = [
                loss.reshape(()).to(losses[0].device, non_blocking=True) * factor
                for loss, factor in zip(losses, factors, strict=True)
            ]
            return self._torch.stack(scaled).mean()
        return sum(loss.item() * factor for loss, factor in zip(losses, factors, strict=True)) / count


def _divisor(loss: Any) -> float:
    """The number that a loss was last divided by; 1 if it was not divided by a number."""
    divisor = 1.0
    with contextlib.suppress(Exception):  # details of PyTorch's own, which may change
        node = loss.grad_fn
        for _ in range(MAX_DIVISIONS):
            if node is None or node.name() not in ("DivBackward0", "MulBackward0"):
                break
            other = node._saved_other  # noqa: SLF001 - there is no public way to read it
            if other is None or other.device.type != "cpu" or other.dim() != 0:
                break
            number = other.item()
            divisor *= number if node.name() == "DivBackward0" else 1 / number
            node = node.next_functions[0][0]
    return round(divisor, 6)
