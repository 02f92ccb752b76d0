"""FLOP formulas for operators that torch's own counter omits or counts wrongly, and reasons for missing ones.

A multiply-add is two operations. A formula receives the arguments of the operator itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACES = frozenset(
    {"aten", "prim", "prims", "profiler", "c10d", "_c10d_functional", "debugprims", "rngprims"}
)
"""Namespaces whose operators are known: matrix products have a formula, or a name in `PRODUCTS`."""

WITHOUT_PRODUCTS = frozenset(
    f"torchvision.{name}"
    for name in ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "_roi_align_backward")
)
PRODUCTS = frozenset(
    {
        *(
            "mm",
            "addmm",
            "bmm",
            "baddbmm",
            "addbmm",
            "matmul",
            "gemm",
            "mv",
            "addmv",
            "dot",
            "vdot",
            "linear",
        ),
        *("conv", "convolution", "attention", "rnn", "lstm", "gru", "trilinear", "transformer"),
        *("conv1d", "conv2d", "conv3d", "depthwise2d", "depthwise3d", "qlinear", "qconv"),
    }
)
"""Words in the names of operators that multiply matrices, and so must not count as zero."""

POINTWISE_CELLS = ("aten._thnn_fused_", "aten._thnn_differentiable_")
"""The gates of recurrent cells, whose matrix products are separate operators."""


def formulas(torch: Any) -> dict[Any, Callable[..., int]]:
    """The formula of each operator that this version of torch has."""
    by_name: dict[str, Callable[..., int]] = {
        "mv": _mv,
        "addmv": _addmv,
        "dot": _dot,
        "vdot": _dot,
        "addbmm": _addbmm,
        "_addmm_activation": _addmm_activation,
        "convolution_backward": _convolution_backward,
        "_scaled_dot_product_flash_attention_for_cpu": _attention,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
        "_scaled_dot_product_fused_attention_overrideable": _attention,
        "_scaled_dot_product_fused_attention_overrideable_backward": _attention_backward,
        "_native_multi_head_attention": _multi_head_attention,
        "_transformer_encoder_layer_fwd": _encoder_layer,
        "mkldnn_rnn_layer": _rnn_layer,
        "mkldnn_rnn_layer_backward": _rnn_layer_backward,
        "_cudnn_rnn": _rnn,
        "_cudnn_rnn_backward": _rnn_backward,
        "miopen_rnn": _rnn,
        "miopen_rnn_backward": _rnn_backward,
    }
    by_operator = {}
    for name, formula in by_name.items():
        operator = getattr(torch.ops.aten, name, None)
        if operator is not None:
            # Makes the counter pass the arguments themselves; the default is their shapes.
            formula._get_raw = True  # type: ignore[attr-defined]  # noqa: SLF001
            by_operator[operator] = formula
    return by_operator


def why_unknown(operator: str, arguments: tuple[Any, ...], *, has_formula: bool) -> str | None:
    """Why the operations of an operator (`aten.mm`) cannot be counted; None if they can."""
    namespace, _, name = operator.partition(".")
    if has_formula:
        is_sparse = any(
            getattr(argument, "is_sparse", False) or _is_compressed(argument) for argument in arguments
        )
        return f"{operator} was called with a sparse tensor" if is_sparse else None
    if operator in WITHOUT_PRODUCTS or operator.startswith(POINTWISE_CELLS):
        return None
    if namespace not in NAMESPACES:
        return f"{operator} is a custom operator, whose operations are not known"
    if not PRODUCTS.isdisjoint(name.split("_")):
        return f"there is no formula for {operator}"
    return None


def _product(sizes: Any) -> int:
    return int(math.prod(sizes))


def _is_compressed(value: Any) -> bool:
    return "sparse" in str(getattr(value, "layout", ""))


def _mv(matrix: Any, *_: Any, **__: Any) -> int:
    return 2 * int(matrix.numel())


def _addmv(_: Any, matrix: Any, *__: Any, **___: Any) -> int:
    return 2 * int(matrix.numel())


def _dot(vector: Any, *_: Any, **__: Any) -> int:
    return 2 * int(vector.numel())


def _addbmm(_: Any, left: Any, right: Any, *__: Any, **___: Any) -> int:
    return 2 * int(left.numel()) * int(right.shape[-1])


def _addmm_activation(_: Any, left: Any, right: Any, *__: Any, **___: Any) -> int:
    return 2 * int(left.numel()) * int(right.shape[-1])


def _convolution_backward(*arguments: Any, **_: Any) -> int:
    """The gradients of input and weight each cost as much as the forward pass.

    Torch's own formula for the weight ignores groups.
    """
    gradient, inputs, weight, _bias, _stride, _padding, _dilation, transposed, _out, _groups, mask = arguments
    # Each weight is used once per position of the smaller side: the output, or the input if transposed.
    places = inputs if transposed else gradient
    forward = 2 * int(inputs.shape[0]) * _product(places.shape[2:]) * int(weight.numel())
    return forward * (bool(mask[0]) + bool(mask[1]))


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Scores and their product with the values, in full: a causal mask saves no operations here."""
    *batch_and_heads, queries, depth = query.shape
    return (
        2
        * _product(batch_and_heads)
        * int(queries)
        * int(key.shape[-2])
        * (int(depth) + int(value.shape[-1]))
    )


def _attention_backward(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> int:
    """Scores are recomputed (one product); then come the gradients of values, scores, queries and keys."""
    *batch_and_heads, queries, depth = query.shape
    by_depth, by_value = 3 * int(depth), 2 * int(value.shape[-1])
    return 2 * _product(batch_and_heads) * int(queries) * int(key.shape[-2]) * (by_depth + by_value)


def _multi_head_attention(query: Any, key: Any, _value: Any, width: int, *_more: Any, **_options: Any) -> int:
    batch, queries, queried = _batch_of(query)
    _batch, keys, keyed = _batch_of(key)
    projected = 2 * width * width * (2 * queried + 2 * keyed)
    return projected + 4 * batch * queries * keys * width


def _encoder_layer(source: Any, width: int, *more: Any, **_: Any) -> int:
    """Attention and the two linear layers after it, which the fast path of evaluation fuses."""
    batch, length, tokens = _batch_of(source)
    hidden = int(more[12].shape[0])
    return 2 * tokens * (4 * width * width + 2 * width * hidden) + 4 * batch * length * length * width


def _batch_of(sequences: Any) -> tuple[int, int, int]:
    """Number of sequences, length of the longest, and total length; only attention includes padding."""
    if not sequences.is_nested:
        batch, length, _ = sequences.shape
        return int(batch), int(length), int(batch) * int(length)
    lengths = [int(sequence.shape[0]) for sequence in sequences.unbind()]
    return len(lengths), max(lengths), sum(lengths)


def _rnn_layer(inputs: Any, weight_input: Any, weight_hidden: Any, *_: Any, **__: Any) -> int:
    """One layer in one direction; each weight is used once per step of each sequence."""
    return 2 * _product(inputs.shape[:2]) * (int(weight_input.numel()) + int(weight_hidden.numel()))


def _rnn_layer_backward(*arguments: Any, **more: Any) -> int:
    """Gradients of the inputs and of the weights, both in full."""
    return 2 * _rnn_layer(*arguments, **more)


def _rnn(inputs: Any, weights: Any, *_: Any, **__: Any) -> int:
    """All layers and directions; for packed sequences, `inputs` has a row for each step of each."""
    steps = _product(inputs.shape[:-1])
    return 2 * int(steps) * sum(int(weight.numel()) for weight in weights if weight.dim() == 2)


def _rnn_backward(*arguments: Any, **more: Any) -> int:
    return 2 * _rnn(*arguments, **more)
