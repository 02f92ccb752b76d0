"""Tells whether a training multiplies matrices in float32, and what faster formats would gain."""

from __future__ import annotations

import re
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.schema.finding import Estimate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.analysis.gpu.gpu_load import GpuLoad
    from stepscope.schema.window import Window

SETUP_EVENT = "census"

NEEDS_SETUP = "Needs the setup of the training, which is recorded with `watch`."


class Peaks(NamedTuple):
    """How many times as many operations a GPU does in a second as in plain float32, as its maker says."""

    tf32: float
    bf16: float


_GEFORCE = Peaks(1.0, 2.0)

PEAKS = (
    (r"(A100|A800|A30|H100|H200|H800|GH200|B100|B200|B300|GB200|GB300)", Peaks(8.0, 16.0)),
    (r"(A2|A10|A10G|A16|A40|L4|L20|L40|L40S|RTX A\d{4}|RTX \d000 Ada|RTX PRO \d{4})", Peaks(2.0, 4.0)),
    (r"(RTX [345]0[5-9]0)", _GEFORCE),
)
"""By the name of the GPU; of those with tensor cores for TF32 and bfloat16. On GeForce boards TF32 is no
faster than float32."""

TENSOR_CORES_IDLE = 0.01
"""Tensor cores that are active for less than this share of the time do not compute the products."""

BANDWIDTH = 0.8
"""Kernels that are limited by memory use about this share of its bandwidth."""

MIN_PRODUCTS, MAX_PRODUCTS = 0.2, 0.95
"""Bounds of the share of products in the time of a pass where nothing else is known."""

CASTING_WRAPPERS = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")
CASTING_LIBRARIES = {"accelerate", "transformers"}
"""They may compute in another number format than the setup shows."""

MATRIX_LAYERS = ("Linear", "Conv1D", "MultiheadAttention")
"""Ends of the names of layers that multiply matrices; `Conv1D` is a linear layer of Transformers."""


def newest_setup(window: Window, rank: int) -> Mapping[str, Any] | None:
    """Returns the newest recorded setup of a rank."""
    setups = window.events_of(SETUP_EVENT, rank)
    return setups[-1].fields if setups else None


def gpu_name(setup: Mapping[str, Any]) -> str:
    """Returns the name of the GPU that a training uses; empty without one."""
    devices = setup.get("devices") or [{}]
    return str(devices[0].get("name", ""))


def peaks_of(name: str) -> Peaks | None:
    """Returns what a GPU gains by faster formats; None for one that lacks them, or that is not known."""
    return next((peaks for pattern, peaks in PEAKS if re.search(rf"\b{pattern}\b", name)), None)


def is_float32(setup: Mapping[str, Any]) -> bool:
    """Whether all parameters are float32 and autocast is known to be off."""
    return set(setup.get("parameter_dtypes") or ()) == {"float32"} and setup.get("autocast") == "off"


def has_tf32(setup: Mapping[str, Any]) -> bool | None:
    """Whether products of matrices may use TF32; None if it is not known."""
    if (setup.get("environment") or {}).get("NVIDIA_TF32_OVERRIDE") == "0":
        return False
    return setup.get("tf32_matmul")


def may_cast_inside(setup: Mapping[str, Any], libraries: set[str]) -> bool:
    """Whether a library may use another number format within the model, unseen by the setup."""
    wrappers = [str(wrapper) for wrapper in setup.get("wrappers") or ()]
    return bool(libraries & CASTING_LIBRARIES) or any(
        wrapper.startswith(CASTING_WRAPPERS) for wrapper in wrappers
    )


def matrix_share(setup: Mapping[str, Any]) -> float | None:
    """Returns the share of the parameters, without embeddings, that are matrices of linear layers."""
    layers = {
        kind: count
        for kind, count in (setup.get("layers") or {}).items()
        if "Embedding" not in kind and "Norm" not in kind
    }
    together = sum(layers.values())
    matrices = sum(count for kind, count in layers.items() if kind.endswith(MATRIX_LAYERS))
    return matrices / together if together else None


def gain(load: GpuLoad, ratio: float) -> Estimate:
    """Returns the share of a step that products would save which are up to `ratio` times as fast.

    The share of products in the passes is not measured. It is bounded by the use of the memory's bandwidth
    where that is read: kernels that are limited by it do not become faster.
    """
    speeds = (sqrt(ratio), max(sqrt(ratio), ratio / 2), ratio)
    shares = zip(_product_shares(load), speeds, strict=True)
    saved = [load.compute * product * (1 - 1 / speed) for product, speed in shares]
    return Estimate(round(saved[0], 3), round(saved[1], 3), round(saved[2], 3))


def gain_method(load: GpuLoad, ratio: float) -> str:
    """Says how `gain` is computed."""
    low, *_ = _product_shares(load)
    return (
        f"Time of the forward and backward pass on the GPU, times {low:.0%} to {MAX_PRODUCTS:.0%} for the "
        "share "
        f"of matrix products in it, times what faster products save: from {sqrt(ratio):.2g} to {ratio:g} "
        "times the speed, which is the ratio of the peak rates. The share of products is not measured."
    )


def _product_shares(load: GpuLoad) -> tuple[float, float, float]:
    low = MIN_PRODUCTS
    if load.dram_active is not None:
        low = min(max(1 - load.dram_active / BANDWIDTH, 0.0), MAX_PRODUCTS)
    return low, (low + MAX_PRODUCTS) / 2, MAX_PRODUCTS
