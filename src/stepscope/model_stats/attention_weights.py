"""Computes attention weights of sampled queries, from the arguments or outputs of an attention layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

MAX_QUERIES = 64
MAX_SEQUENCES = 4
"""Weights are computed for this many evenly spaced queries of this many sequences, over all keys."""

FIGURES = ("entropy", "top_ratio", "effective_keys")


def head_figures(torch: ModuleType, weights: Any) -> Any:
    """One row for each head: entropy in nats, maximum weight, effective number of keys; means over queries.

    `weights` has the dimensions sequence, head, query, key. The effective number of keys is the number of
    equally weighted keys with the same entropy: from 1 (all weight on one key) to the number of keys (uniform
    weights). Weights after dropout are scaled to sum to 1. A query whose keys are all masked is left out.
    """
    shares = weights.detach().to(torch.float32)
    shares = shares / shares.sum(-1, keepdim=True)
    entropy = torch.special.entr(shares).sum(-1)
    top = shares.amax(-1)
    rows = torch.stack([entropy, top, entropy.exp()], dim=-1)
    return rows.nanmean(dim=(0, 2))


def thinned(weights: Any) -> Any:
    """Sampled queries of sampled sequences, of weights with the dimensions sequence, head, query, key."""
    return weights[
        :: _spacing(weights.shape[0], MAX_SEQUENCES), :, :: _spacing(weights.shape[2], MAX_QUERIES)
    ]


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of a `scaled_dot_product_attention` call."""

    query: Any
    key: Any
    mask: Any = None
    is_causal: bool = False
    scale: float | None = None

    def weights(self, torch: ModuleType) -> Any:
        """The weights of sampled queries, as the function would compute them, without dropout."""
        query, key = _four_dimensions(self.query.detach()), _four_dimensions(self.key.detach())
        sequences = slice(None, None, _spacing(query.shape[0], MAX_SEQUENCES))
        rows = slice(None, None, _spacing(query.shape[2], MAX_QUERIES))
        scale = 1 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        queries, keys = query[sequences, :, rows].float(), key[sequences].float()
        if keys.shape[1] != queries.shape[1]:
            # In grouped-query attention, several heads share their keys.
            keys = keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1)
        with torch.autocast(query.device.type, enabled=False):
            scores = queries @ keys.transpose(-2, -1) * scale
        allowed = self._allowed(torch, query, key)
        if allowed is not None:
            allowed = allowed[sequences, :, rows]
            is_boolean = allowed.dtype == torch.bool
            scores = scores.masked_fill(~allowed, -torch.inf) if is_boolean else scores + allowed
        return scores.softmax(-1)

    def _allowed(self, torch: ModuleType, query: Any, key: Any) -> Any:
        """The mask for all sequences, heads, queries and keys, as a view; None if there is no mask."""
        queries, keys = query.shape[2], key.shape[2]
        mask = None if self.mask is None else self.mask.detach()
        if self.is_causal:
            mask = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril()
        return None if mask is None else mask.expand(*query.shape[:2], queries, keys)


def multihead_weights(
    torch: ModuleType, module: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """The weights of sampled queries of a `torch.nn.MultiheadAttention`, from the arguments of a call."""
    passed = {**dict(zip(_MULTIHEAD_ARGUMENTS, arguments, strict=False)), **named}
    query, key, value = (passed[name].detach() for name in ("query", "key", "value"))
    if query.dim() == 2:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
    elif module.batch_first:
        query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
    count = query.shape[1]
    sequences = slice(None, None, _spacing(count, MAX_SEQUENCES))
    rows = slice(None, None, _spacing(query.shape[0], MAX_QUERIES))
    padding, mask = passed.get("key_padding_mask"), passed.get("attn_mask")
    if padding is not None:
        padding = padding.reshape(count, -1)[sequences]
    if mask is not None:
        mask = mask[rows] if mask.dim() == 2 else _each_head(mask, count, sequences, rows)
    _, weights = torch.nn.functional.multi_head_attention_forward(
        query[rows, sequences],
        key[:, sequences],
        value[:, sequences],
        key_padding_mask=padding,
        attn_mask=mask,
        need_weights=True,
        average_attn_weights=False,
        training=False,
        **_settings_of(module),
    )
    return weights


def _settings_of(module: Any) -> dict[str, Any]:
    """The arguments that a multi-head attention module passes to its function, without dropout."""
    is_separate = not module._qkv_same_embed_dim  # noqa: SLF001 - there is no public name for it
    separate = {f"{part}_proj_weight": getattr(module, f"{part}_proj_weight") for part in "qkv"}
    return {
        "embed_dim_to_check": module.embed_dim,
        "num_heads": module.num_heads,
        "in_proj_weight": module.in_proj_weight,
        "in_proj_bias": module.in_proj_bias,
        "bias_k": module.bias_k,
        "bias_v": module.bias_v,
        "add_zero_attn": module.add_zero_attn,
        "dropout_p": 0.0,
        "out_proj_weight": module.out_proj.weight,
        "out_proj_bias": module.out_proj.bias,
        "use_separate_proj_weight": is_separate,
        **(separate if is_separate else {}),
    }


_MULTIHEAD_ARGUMENTS = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")


def returned_weights(torch: ModuleType, output: Any) -> Any:
    """The attention weights among a layer's further outputs: the first tensor with four dimensions."""
    parts = tuple(output.values()) if isinstance(output, dict) else output
    if not isinstance(parts, list | tuple):
        return None
    for part in parts[1:]:
        if isinstance(part, torch.Tensor) and part.is_floating_point() and part.dim() == 4:
            return thinned(part)
    return None


def _each_head(mask: Any, count: int, sequences: slice, rows: slice) -> Any:
    """A mask per head, for the sampled sequences and queries."""
    heads = mask.shape[0] // count
    return mask.reshape(count, heads, *mask.shape[1:])[sequences, :, rows].flatten(0, 1)


def _four_dimensions(tensor: Any) -> Any:
    """Adds missing leading dimensions, so that a tensor has: sequence, head, position, feature."""
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(0)
    return tensor if tensor.dim() == 4 else tensor.flatten(0, tensor.dim() - 4)


def _spacing(size: int, limit: int) -> int:
    return max(math.ceil(size / limit), 1)
