"""Patches the few functions of PyTorch that start or end a phase, and restores them.

Functions are patched only while something is watched, and take effect in the training thread only. Functions
that are called rarely stay patched; functions that every step calls are patched only in phase-timed steps.
Without a GPU, backward passes stay patched, too, where steps are long: a NaN loss must be seen in its step.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from stepscope.steps.compiled_code import exclude_from_compilation, passes_through
from stepscope.steps.phase_timer import BACKWARD, CHECKPOINT, DATA, OPTIMIZER, OTHER, TRANSFER, PhaseTimer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_phase_timers: dict[int, PhaseTimer] = {}
"""The phase timer of each watched training thread."""

_timed: set[int] = set()
"""The threads whose current step is timed phase by phase."""

Installed = list[tuple[Any, str, Any, Any]]
"""Installed patches: the owner, the attribute name, the original (None if inherited), and the replacement."""

_rare: Installed = []
_frequent: Installed = []
_backward: Installed = []

_reading_losses: set[int] = set()
"""The threads whose losses are read in every step."""

_lock = threading.Lock()


def follow(phase_timer: PhaseTimer, torch: ModuleType) -> None:
    """Switches phases of this thread at rare calls into PyTorch, such as saving."""
    with _lock:
        _phase_timers[threading.get_ident()] = phase_timer
        if not _rare:
            install(_rare, torch, "save", lambda original: _phased(original, CHECKPOINT))
            install(_rare, loss_scaler(torch), "step", _scaled)


def follow_phases(phase_timer: PhaseTimer, torch: ModuleType) -> None:
    """Switches phases of this thread at calls that every step makes, until `unfollow_phases`."""
    exclude_from_compilation(torch)
    with _lock:
        thread = threading.get_ident()
        _phase_timers[thread] = phase_timer
        _timed.add(thread)
        if not _frequent:
            _install_phases(torch)
        if not _backward:
            install(_backward, torch.autograd, "backward", _differentiating)


def unfollow_phases(phase_timer: PhaseTimer, *, but_losses: bool = False) -> None:
    """Stops following the calls that every step makes; `but_losses` leaves out those of backward passes."""
    with _lock:
        threads = [thread for thread, timer in _phase_timers.items() if timer is phase_timer]
        _timed.difference_update(threads)
        (_reading_losses.update if but_losses else _reading_losses.difference_update)(threads)
        if not _timed:
            remove_all(_frequent)
        if not _timed and not _reading_losses:
            remove_all(_backward)


def unfollow(phase_timer: PhaseTimer) -> None:
    """Undoes `follow`; the last caller restores PyTorch."""
    unfollow_phases(phase_timer)
    with _lock:
        for thread in [thread for thread, timer in _phase_timers.items() if timer is phase_timer]:
            del _phase_timers[thread]
        if not _phase_timers:
            remove_all(_rare)


def _install_phases(torch: ModuleType) -> None:
    iterators = torch.utils.data.dataloader._BaseDataLoaderIter  # noqa: SLF001 - it has no public name
    install(_frequent, iterators, "__next__", lambda original: _phased(original, DATA))
    if torch.cuda.is_available():
        is_cuda = functools.partial(_is_cuda, torch.device)
        install(_frequent, torch.Tensor, "to", lambda original: _moving(original, is_cuda))
        install(_frequent, torch.Tensor, "cuda", lambda original: _moving(original, lambda *_, **__: True))


def loss_scaler(torch: ModuleType) -> Any:
    """The class of PyTorch's loss scalers, from which those of all devices inherit."""
    return (
        getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    )  # PyTorch 2.2 has only this one


def install(patches: Installed, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Wraps a function of `owner`, and adds the patch to `patches`."""
    original = getattr(owner, name)
    replacement = wrap(original)
    own = vars(owner).get(name)
    setattr(owner, name, replacement)
    patches.append((owner, name, own, replacement))


def remove_all(patches: Installed) -> None:
    """Removes all patches in `patches`."""
    while patches:
        _remove(*patches.pop())


def _remove(owner: Any, name: str, own: Any, replacement: Any) -> None:
    if vars(owner).get(name) is not replacement:
        return  # other code has wrapped the patch, which stays and passes calls through
    if own is None:
        delattr(owner, name)
    else:
        setattr(owner, name, own)


def _phased(original: Callable[..., Any], phase: int) -> Callable[..., Any]:
    """Wraps a function so that it runs in a phase, unless that phase is already the current one."""

    @passes_through
    @functools.wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        phase_timer = _phase_timers.get(threading.get_ident())
        if phase_timer is None or phase_timer.phase == phase:
            return original(*arguments, **options)
        before = phase_timer.enter(phase)
        try:
            return original(*arguments, **options)
        finally:
            phase_timer.enter(before)

    return call


def _differentiating(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `torch.autograd.backward`, so that the timer knows what each backward pass begins with."""
    phased = _phased(original, BACKWARD)

    @passes_through
    @functools.wraps(original)
    def backward(tensors: Any, *arguments: Any, **options: Any) -> Any:
        phase_timer = _phase_timers.get(threading.get_ident())
        if phase_timer is not None:
            phase_timer.on_loss(tensors)
            if threading.get_ident() not in _timed:
                return original(tensors, *arguments, **options)
            phase_timer.on_backward(tensors)
        return phased(tensors, *arguments, **options)

    return backward


def _scaled(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the step of a loss scaler, which skips the optimizer step when gradients have overflowed."""
    phased = _phased(original, OPTIMIZER)

    @passes_through
    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *arguments: Any, **options: Any) -> Any:
        thread = threading.get_ident()
        phase_timer = _phase_timers.get(thread)
        if phase_timer is None:
            return original(self, optimizer, *arguments, **options)
        made = phase_timer.timer.steps_made
        result = (phased if thread in _timed else original)(self, optimizer, *arguments, **options)
        if phase_timer.timer.steps_made == made:
            phase_timer.on_skipped_step(optimizer)
        return result

    return step


def _moving(original: Callable[..., Any], targets_gpu: Callable[..., bool]) -> Callable[..., Any]:
    """Wraps a tensor method so that a copy from the host to a GPU outside the model is a transfer phase."""

    @passes_through
    @functools.wraps(original)
    def move(self: Any, *arguments: Any, **options: Any) -> Any:
        phase_timer = _phase_timers.get(threading.get_ident())
        if phase_timer is None or phase_timer.phase not in (OTHER, DATA) or self.is_cuda:
            return original(self, *arguments, **options)
        if not targets_gpu(*arguments, **options):
            return original(self, *arguments, **options)
        before = phase_timer.enter(TRANSFER)
        try:
            return original(self, *arguments, **options)
        finally:
            phase_timer.enter(before)

    return move


def _is_cuda(device_type: type, target: Any = None, *_: Any, device: Any = None, **__: Any) -> bool:
    """Whether the arguments of `Tensor.to` specify a GPU."""
    target = device if target is None else target
    if isinstance(target, str):
        return target.startswith("cuda")
    if isinstance(target, device_type):
        return bool(target.type == "cuda")  # type: ignore[attr-defined]  # a torch.device
    return isinstance(target, int) or bool(getattr(target, "is_cuda", False))
