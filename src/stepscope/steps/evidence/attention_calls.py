"""Finds out how a model computes attention, from the calls of a few sampled steps."""

from __future__ import annotations

import functools
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.random_sampling import NEVER
from stepscope.model_stats.sampled_hooks import WARM_UP, compiled_frames
from stepscope.steps.compiled_code import passes_through
from stepscope.steps.patches import Installed, install, remove_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

EVENT = "attention"

LOOKS, STEPS_BETWEEN = 3, 40
"""How many steps are observed, and how far they are apart."""

MIN_LENGTH = 128
"""Attention over shorter sequences is not counted: its matrix is small."""

MATH = 0
"""The number of the kernel that computes the whole matrix of weights, among those of PyTorch."""


class AttentionCalls:
    """An observer that counts calls of attention on a GPU, and reads which kernel each would choose.

    It replaces functions of PyTorch in the observed steps only, and calls them unchanged. Nothing is replaced
    once anything was compiled: compiled code chooses its kernels itself, and would be compiled again.
    """

    def __init__(self, torch: ModuleType, record_event: Callable[..., None], device: str = "cuda") -> None:
        self._torch, self._record_event, self._device = torch, record_event, device
        self._thread = threading.get_ident()
        self._patches: Installed = []
        self._looks = 0
        self._fields: dict[str, Any] = {"fused": 0, "math": 0, "by_hand": 0, "length": 0}
        self.due = WARM_UP

    def after_step(self, step: int) -> Mapping[str, float]:
        """Ends the observation of a step, or begins one."""
        self.due = 1
        if self._patches:
            remove_all(self._patches)
            self._looks += 1
            self.due = STEPS_BETWEEN
            if self._looks == LOOKS:
                self._record_event(EVENT, steps=self._looks, **self._fields)
                self.due = NEVER
        elif compiled_frames():
            self._record_event(EVENT, unknown="compiled code chooses its kernels itself")
            self.due = NEVER
        else:
            self._thread = threading.get_ident()
            functional = self._torch.nn.functional
            install(self._patches, functional, "scaled_dot_product_attention", self._fused)
            install(self._patches, functional, "softmax", self._by_hand)
            install(self._patches, self._torch, "softmax", self._by_hand)
        return {}

    def close(self) -> None:
        """Restores the functions."""
        remove_all(self._patches)

    def _fused(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @passes_through
        @functools.wraps(original)
        def call(query: Any, key: Any, *rest: Any, **options: Any) -> Any:
            # What an object of the user's own raises, the call itself raises, too.
            with suppress(Exception):
                if self._is_counted(query) and int(key.shape[-2]) >= MIN_LENGTH:
                    self._count_kernel(query, key, rest, options)
            return original(query, key, *rest, **options)

        return call

    def _by_hand(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @passes_through
        @functools.wraps(original)
        def call(scores: Any, *rest: Any, **options: Any) -> Any:
            with suppress(Exception):
                if self._is_counted(scores) and scores.dim() in (3, 4):
                    queries, keys = scores.shape[-2:]
                    if queries == keys and keys >= MIN_LENGTH:
                        self._count("by_hand", int(keys))
            return original(scores, *rest, **options)

        return call

    def _is_counted(self, tensor: Any) -> bool:
        is_here = threading.get_ident() == self._thread and tensor.device.type == self._device
        return bool(is_here and tensor.requires_grad and self._torch.is_grad_enabled())

    def _count_kernel(self, query: Any, key: Any, rest: tuple[Any, ...], options: dict[str, Any]) -> None:
        choice = self._torch._fused_sdp_choice(query, key, *rest, **options)  # noqa: SLF001 - it has no public name
        self._count("math" if choice == MATH else "fused", int(key.shape[-2]))
        if choice == MATH:
            names = ("value", "attn_mask")
            mask = {**dict(zip(names, rest, strict=False)), **options}.get("attn_mask")
            self._fields.update(dtype=str(query.dtype).removeprefix("torch."), has_mask=mask is not None)

    def _count(self, kind: str, length: int) -> None:
        self._fields[kind] += 1
        self._fields["length"] = max(self._fields["length"], length)
