"""Puts itself before the few functions of PyTorch that begin or end a phase, and takes itself away again.

Only while something is watched, and only for the thread that trains: for all others a call passes through.
What is called rarely is followed all the time; what every step calls, only in steps whose phases are timed.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from stepscope.steps.compiled_code import passes_through
from stepscope.steps.phase_timer import BACKWARD, CHECKPOINT, DATA, OPTIMIZER, OTHER, TRANSFER, PhaseTimer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_chains: dict[int, PhaseTimer] = {}
"""The chain of each thread that trains under watch."""

_timed: set[int] = set()
"""Those of these threads whose present step is timed phase by phase."""

Installed = list[tuple[Any, str, Any, Any]]
"""What was put in place: its owner, its name there, the original (None where it was inherited), and ours."""

_rare: Installed = []
_frequent: Installed = []

_lock = threading.Lock()


def follow(chain: PhaseTimer, torch: ModuleType) -> None:
    """From now on what this thread does in PyTorch rarely, such as saving, moves its chain on."""
    with _lock:
        _chains[threading.get_ident()] = chain
        if not _rare:
            install(_rare, torch, "save", lambda original: _phased(original, CHECKPOINT))
            install(_rare, torch.amp.grad_scaler.GradScaler, "step", _scaled)


def follow_phases(chain: PhaseTimer, torch: ModuleType) -> None:
    """The same for what happens in every step; for as long as `unfollow_phases` is not called."""
    with _lock:
        thread = threading.get_ident()
        _chains[thread] = chain
        _timed.add(thread)
        if not _frequent:
            _install_phases(torch)


def unfollow_phases(chain: PhaseTimer) -> None:
    """Leaves what happens in every step alone again."""
    with _lock:
        _timed.difference_update([thread for thread, known in _chains.items() if known is chain])
        if not _timed:
            put_all_back(_frequent)


def unfollow(chain: PhaseTimer) -> None:
    """Undoes `follow`; the last one to leave puts everything back as it was."""
    unfollow_phases(chain)
    with _lock:
        for thread in [thread for thread, known in _chains.items() if known is chain]:
            del _chains[thread]
        if not _chains:
            put_all_back(_rare)


def _install_phases(torch: ModuleType) -> None:
    install(_frequent, torch.autograd, "backward", lambda original: _phased(original, BACKWARD))
    iterators = torch.utils.data.dataloader._BaseDataLoaderIter  # noqa: SLF001 - it has no public name
    install(_frequent, iterators, "__next__", lambda original: _phased(original, DATA))
    if torch.cuda.is_available():
        is_cuda = functools.partial(_is_cuda, torch.device)
        install(_frequent, torch.Tensor, "to", lambda original: _moving(original, is_cuda))
        install(_frequent, torch.Tensor, "cuda", lambda original: _moving(original, lambda *_, **__: True))


def install(place: Installed, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Puts a function around one of an owner's, and notes that in `place`."""
    original = getattr(owner, name)
    ours = wrap(original)
    own = vars(owner).get(name)
    setattr(owner, name, ours)
    place.append((owner, name, own, ours))


def put_all_back(place: Installed) -> None:
    """Takes away what was put in place."""
    while place:
        _put_back(*place.pop())


def _put_back(owner: Any, name: str, own: Any, ours: Any) -> None:
    if vars(owner).get(name) is not ours:
        return  # somebody has put themselves in front of us: ours stays behind them, and passes calls through
    if own is None:
        delattr(owner, name)
    else:
        setattr(owner, name, own)


def _phased(original: Callable[..., Any], phase: int) -> Callable[..., Any]:
    """A function that is a phase, unless it is called within that phase already."""

    @passes_through
    @functools.wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        chain = _chains.get(threading.get_ident())
        if chain is None or chain.phase == phase:
            return original(*arguments, **options)
        before = chain.enter(phase)
        try:
            return original(*arguments, **options)
        finally:
            chain.enter(before)

    return call


def _scaled(original: Callable[..., Any]) -> Callable[..., Any]:
    """The step of a loss scaler, which leaves out that of the optimizer when gradients have overflown."""
    phased = _phased(original, OPTIMIZER)

    @passes_through
    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *arguments: Any, **options: Any) -> Any:
        thread = threading.get_ident()
        chain = _chains.get(thread)
        if chain is None:
            return original(self, optimizer, *arguments, **options)
        made = chain.timer.steps_made
        result = (phased if thread in _timed else original)(self, optimizer, *arguments, **options)
        if chain.timer.steps_made == made:
            chain.on_skipped_step(optimizer)
        return result

    return step


def _moving(original: Callable[..., Any], leads_to_gpu: Callable[..., bool]) -> Callable[..., Any]:
    """A method of tensors that is a transfer when it leads from the host to a GPU outside of the model."""

    @passes_through
    @functools.wraps(original)
    def move(self: Any, *arguments: Any, **options: Any) -> Any:
        chain = _chains.get(threading.get_ident())
        if chain is None or chain.phase not in (OTHER, DATA) or self.is_cuda:
            return original(self, *arguments, **options)
        if not leads_to_gpu(*arguments, **options):
            return original(self, *arguments, **options)
        before = chain.enter(TRANSFER)
        try:
            return original(self, *arguments, **options)
        finally:
            chain.enter(before)

    return move


def _is_cuda(device_type: type, target: Any = None, *_: Any, device: Any = None, **__: Any) -> bool:
    """Whether the arguments of `Tensor.to` name a GPU."""
    target = device if target is None else target
    if isinstance(target, str):
        return target.startswith("cuda")
    if isinstance(target, device_type):
        return bool(target.type == "cuda")  # type: ignore[attr-defined]  # a torch.device
    return isinstance(target, int) or bool(getattr(target, "is_cuda", False))
