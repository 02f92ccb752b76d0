"""Says what a metric key means: its unit, its description, its group, and whether it may be smoothed."""

from __future__ import annotations

import functools
import re

from stepscope import plugins
from stepscope.agent.own_cost import METRICS as OWN_METRICS
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
    "accuracy": "Share of answers that were right.",
    "batch/samples": "Samples in the batches of a step, at chosen steps.",
    "batch/tokens": "Tokens in the batches of a step, at chosen steps.",
    "batch_size": "Samples in a batch.",
    "compile/graph_breaks": "Times the compiler had to give up a graph, since the last look.",
    "compile/recompiles": "Times something was compiled again, since the last look.",
    "compile/seconds": "Time spent compiling, since the last look.",
    "device/sampled_ratio": "How likely a step was to be timed on the GPU.",
    "device/step_seconds": "How long a chosen step took on the GPU's own clock.",
    "epoch": "Passes over the data that had been begun.",
    "gap/checkpoint_seconds": "Time spent writing checkpoints between two steps.",
    "gap/epoch_seconds": "Time between two passes over the data, without evaluations and checkpoints.",
    "gap/eval_seconds": "Time of an evaluation between two steps.",
    "gap/startup_seconds": "Time from the beginning of the recording to that of the first step.",
    "gc/pause_seconds": "Time Python's garbage collector stopped all threads, since the last look.",
    "gradient_norm": "Length of the gradients of all parameters together.",
    "learning_rate": "How far the optimizer goes for each unit of gradient.",
    "loader/ready_batches": "Batches that lay ready when a step had ended.",
    "loss": "What training makes smaller.",
    "memory/allocated_bytes": "GPU memory held by tensors.",
    "memory/inactive_split_bytes": "GPU memory in parts of blocks too small to be used again.",
    "memory/peak_bytes": "Most GPU memory tensors have held so far.",
    "memory/reserved_bytes": "GPU memory PyTorch has taken, in use or not.",
    "micro_steps": "Batches to one step of the optimizer.",
    "optimizer_skipped": "1 where the optimizer's step was left out because gradients had overflown.",
    "phase/sampled_ratio": "How likely a step was to be timed phase by phase.",
    "ranks/wait_seconds": "Time a rank waited for the others in a step; the late one waits least.",
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
        "phase": f"Time of a step that went into {activity}.",
        "device": f"The same on the GPU's own clock, at chosen steps: {activity}.",
        "lag": f"How far the GPU was behind the host at the end of this phase: {activity}.",
        "ranks": f"Time a rank waited for the others within this phase: {activity}.",
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
    return {**sentences, **{metric.key: metric.sentence for metric in OWN_METRICS}}
