"""Says what a metric key means: its unit, its description, its group, and whether it may be smoothed."""

from __future__ import annotations

import functools
import re

from stepscope import plugins
from stepscope.agent import exporter_reports, own_cost
from stepscope.samplers.base import Sampler

_UNITS_BY_SUFFIX = (
    ("_bytes_per_second", "bytes/s"),
    ("tokens_per_second", "tokens/s"),
    ("samples_per_second", "samples/s"),
    ("_per_second", "/s"),
    ("_seconds_total", "seconds"),
    ("_seconds", "seconds"),
    ("_bytes", "bytes"),
    ("_ratio", "ratio"),
    ("_celsius", "celsius"),
    ("_watts", "watts"),
    ("_joules_total", "joules"),
    ("_joules", "joules"),
    ("_hertz", "hertz"),
    ("_percent", "%"),
    ("_ms", "ms"),
)
_UNITS_BY_NAME = {"loss": "", "accuracy": "ratio", "perplexity": "", "seconds": "seconds"}

_PHASES = {
    "data": "waiting for the next batch",
    "transfer": "copying from the host to a GPU, outside of the model",
    "forward": "the forward pass of the model",
    "backward": "the backward pass",
    "optimizer": "the step of the optimizer",
    "checkpoint": "writing a checkpoint",
    "eval": "calls of the model without training",
    "other": "everything else in the loop",
}
_SENTENCES = {
    "accuracy": "Share of correct predictions.",
    "batch/samples": "Samples in the batches of a step, in sampled steps.",
    "batch/tokens": "Tokens in the batches of a step, in sampled steps.",
    "batch/padding_ratio": "Share of the tokens of a batch that is padding, in sampled steps.",
    "batch_size": "Samples in a batch.",
    "compile/graph_breaks": "Graph breaks of the compiler since the previous reading.",
    "compile/recompiles": "Recompilations since the previous reading.",
    "compile/seconds": "Time spent compiling since the previous reading.",
    "device/sampled_ratio": "Probability that a step was timed on the GPU.",
    "device/step_seconds": "Time of a sampled step on the GPU's clock.",
    "epoch": "Number of the current pass over the data.",
    "gap/checkpoint_seconds": "Time spent writing checkpoints between two steps.",
    "gap/epoch_seconds": "Time between two epochs, without evaluations and checkpoints.",
    "gap/eval_seconds": "Time of an evaluation between two steps.",
    "gap/startup_seconds": "Time from the start of recording to the first step.",
    "gc/pause_seconds": "Time of Python's garbage collection since the previous reading; all threads stop.",
    "gradient_norm": "Norm of the gradients of all parameters.",
    "learning_rate": "Step size of the optimizer.",
    "loader/ready_batches": "Batches that were ready at the end of a step.",
    "losses/kept_ratio": "Earlier losses that still exist with their graphs.",
    "loss": "The value that training minimizes.",
    "memory/allocated_bytes": "GPU memory held by tensors.",
    "memory/inactive_split_bytes": "GPU memory in split blocks too small to be reused.",
    "memory/peak_bytes": "Peak GPU memory held by tensors so far.",
    "memory/reserved_bytes": "GPU memory reserved by PyTorch, in use or not.",
    "micro_steps": "Batches per optimizer step.",
    "optimizer_skipped": "1 if the optimizer step was skipped because gradients overflowed.",
    "phase/sampled_ratio": "Probability that the phases of a step were timed.",
    "ranks/exchanges": "How often gradients were exchanged between ranks in a step, in sampled steps.",
    "ranks/wait_seconds": "Time a rank waited for the others in a step; the late rank waits least.",
    "step_seconds": "How long a whole step took.",
    "stepscope/overhead_ratio": "Share of the training thread's time that recording takes.",
}
_COUNTER_NAMES = ("epoch", "step", "iteration")
_FLAGS = re.compile(r"(?:^|/)(?:throttled_|optimizer_skipped$|.*_(?:pending|failed)$)")
_PHASE = re.compile(r"(phase|device|lag|ranks)/(\w+?)(?:_wait)?_seconds")


def unit_of(key: str) -> str:
    """Returns the unit that the name of a key ends with; empty for a plain number."""
    name = key.rpartition("/")[2].lower()
    if name in _UNITS_BY_NAME:
        return _UNITS_BY_NAME[name]
    for suffix, unit in _UNITS_BY_SUFFIX:
        if name.endswith(suffix):
            return unit
    return "ratio" if name.endswith("accuracy") else ""


def group_of(key: str) -> str:
    """Returns the part of a key before the last slash; empty if there is no slash."""
    return key.rpartition("/")[0]


def sentence_of(key: str) -> str:
    """Returns a sentence on what a key means; empty for a key of the user's own."""
    sentence = _SENTENCES.get(key) or _declared().get(key)
    if sentence is not None:
        return sentence
    match = _PHASE.fullmatch(key)
    if match is None or match[2] not in _PHASES:
        return ""
    activity = _PHASES[match[2]]
    return {
        "phase": f"Time of this phase in each step: {activity}.",
        "device": f"Time of this phase on the GPU's clock, in sampled steps: {activity}.",
        "lag": f"How far the GPU was behind the host at the end of this phase: {activity}.",
        "ranks": f"Time a rank waited for the others in this phase: {activity}.",
    }[match[1]]


def is_never_smoothed(key: str) -> bool:
    """Returns whether smoothing would distort a key: learning rates, counters and flags."""
    name = key.rpartition("/")[2].lower()
    is_rate = "learning_rate" in name or "lr" in re.split(r"[^a-z0-9]+", name)
    is_counter = name.endswith(("_total", "micro_steps", *_COUNTER_NAMES))
    return is_rate or is_counter or _FLAGS.search(key) is not None


@functools.cache
def _declared() -> dict[str, str]:
    """Returns the sentences that samplers declare for their metrics."""
    samplers = [plugins.load("samplers", name, Sampler) for name in plugins.names("samplers")]  # type: ignore[type-abstract]  # only its members
    sentences = {metric.key: metric.sentence for sampler in samplers for metric in sampler.metrics}
    return {
        **sentences,
        **{metric.key: metric.sentence for metric in (*own_cost.METRICS, *exporter_reports.METRICS)},
    }
