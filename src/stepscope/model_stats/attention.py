"""`Attention`: how concentrated attention is, by layer and by head, at randomly sampled steps."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from stepscope.model_stats.attention_weights import (
    FIGURES,
    AttentionCall,
    head_figures,
    multihead_weights,
    returned_weights,
)
from stepscope.model_stats.sampled_hooks import SampledHooks, compiled_frames, concatenated, eager_modules

if TYPE_CHECKING:
    from collections.abc import Callable

_FUSED = "scaled_dot_product_attention"

MAX_LAYERS = 64


class Attention(SampledHooks):
    """Records `attention_entropy`, `attention_top_ratio` and `attention_effective_keys`, each by layer.

    For `torch.nn.MultiheadAttention` the weights are recomputed from the arguments of the call. For other
    layers with attention in their class name they are taken from the outputs after the first, as Hugging Face
    models return them with `output_attentions`. Fused kernels return none: with `recompute=True` they are
    computed from queries and keys wherever `scaled_dot_product_attention` is called in a sampled step.

    The statistics of single heads are an array, `attention_heads/<layer>`, with one row of three for each
    head.
    """

    name = "Watching attention"

    def __init__(
        self, model: Any, *, every_steps: int = 1000, recompute: bool = False, **options: Any
    ) -> None:
        super().__init__(model, every_steps=every_steps, **options)
        self._recompute = recompute
        self._heads: dict[str, Any] = {}
        self._inside: list[str] = []
        self._nameless = 0
        self._thread = 0
        self._fused: tuple[Any, Any] | None = None

    def heads(self, run: Callable[[], Any]) -> dict[str, list[list[float]]]:
        """Entropy, maximum weight and effective keys of each head of each layer while `run` is called."""
        self._is_measuring = True
        self._open()
        try:
            run()
            return {name: rows.tolist() for name, rows in self._heads.items()}
        finally:
            self._close()

    def _attach(self) -> None:
        self._thread = threading.get_ident()
        for name, module in eager_modules(self._model()):
            if isinstance(module, self._torch.nn.MultiheadAttention):
                self._hooks.after_forward(
                    module, functools.partial(self._on_multihead, name), with_kwargs=True
                )
            elif any(part in type(module).__name__.lower() for part in ("attention", "attn")):
                self._hooks.after_forward(module, functools.partial(self._on_other_layer, name))
            else:
                continue
            if self._recompute:
                self._hooks.before_forward(module, functools.partial(self._entered, name))
        # Replacing the function would recompile compiled functions that call it.
        if self._recompute and not compiled_frames():
            self._patch_fused()

    def _detach(self) -> None:
        self._heads.clear()
        self._inside.clear()
        self._nameless = 0
        functional = self._torch.nn.functional
        fused, self._fused = self._fused, None
        if fused is not None and getattr(functional, _FUSED) is fused[1]:
            setattr(functional, _FUSED, fused[0])

    def _record(self) -> None:
        super()._record()
        for name, rows in self._heads.items():
            self._sink.record_array(f"attention_heads/{name}", rows)

    def _figures(self) -> tuple[list[str], Any]:
        keys = [f"attention_{figure}/{name}" for name in self._heads for figure in FIGURES]
        parts = [rows.mean(dim=0) for rows in self._heads.values()]
        return keys, concatenated(self._torch, parts) if parts else None

    def _is_new(self, name: str) -> bool:
        return name not in self._heads and len(self._heads) < MAX_LAYERS

    def _entered(self, name: str, *_: Any) -> None:
        self._inside.append(name)

    def _left(self, name: str) -> None:
        if self._inside and self._inside[-1] == name:
            self._inside.pop()

    def _on_multihead(self, name: str, module: Any, arguments: Any, named: Any, _output: Any) -> None:
        self._left(name)
        if self._is_new(name) and (module.training or self._is_measuring):
            weights = multihead_weights(self._torch, module, arguments, named)
            self._heads[name] = head_figures(self._torch, weights)

    def _on_other_layer(self, name: str, module: Any, _arguments: Any, output: Any) -> None:
        self._left(name)
        if self._is_new(name) and (module.training or self._is_measuring):
            weights = returned_weights(self._torch, output)
            if weights is not None:
                self._heads[name] = head_figures(self._torch, weights)

    def _patch_fused(self) -> None:
        functional = self._torch.nn.functional
        original = getattr(functional, _FUSED)

        @functools.wraps(original)
        def patched(query: Any, key: Any, *rest: Any, **options: Any) -> Any:
            if self.is_open and threading.get_ident() == self._thread:
                self._hooks.run(self._on_fused_call, query, key, rest, options)
            return original(query, key, *rest, **options)

        setattr(functional, _FUSED, patched)
        self._fused = original, patched

    def _on_fused_call(self, query: Any, key: Any, rest: tuple[Any, ...], options: dict[str, Any]) -> None:
        if self._inside:
            name = self._inside[-1]
        else:
            name = f"call_{self._nameless}"
            self._nameless += 1
        if not self._is_new(name):
            return
        passed = {**dict(zip(_FUSED_ARGUMENTS, rest, strict=False)), **options}
        call = AttentionCall(
            query, key, passed.get("attn_mask"), passed.get("is_causal", False), passed.get("scale")
        )
        self._heads[name] = head_figures(self._torch, call.weights(self._torch))


_FUSED_ARGUMENTS = ("value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
