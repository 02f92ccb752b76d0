"""The keys that every run records, whatever it trains."""

from __future__ import annotations

PHASES = ("data", "transfer", "forward", "backward", "optimizer", "checkpoint", "eval", "other")
"""The phases of a step, in order."""

STEP_SECONDS = "step_seconds"
SAMPLED_RATIO = "phase/sampled_ratio"
"""The probability that a step was timed phase by phase: its inverse is the weight of such a step."""

STARTUP_SECONDS = "gap/startup_seconds"
"""From the start of the recording to the start of the first step."""

EPOCH_GAP_SECONDS = "gap/epoch_seconds"
"""Between two passes over the data, without evaluations and checkpoints: loader workers are restarted."""

EVAL_GAP_SECONDS = "gap/eval_seconds"
"""Evaluations between two steps; `phase/eval_seconds` includes these, and those within steps."""

CHECKPOINT_GAP_SECONDS = "gap/checkpoint_seconds"
"""Checkpoints between two steps; `phase/checkpoint_seconds` includes these, and those within steps."""

OVERHEAD_RATIO = "stepscope/overhead_ratio"
"""The share of the training thread's time spent on recording, without the user's own log calls."""

GRADIENT_NORM = "gradient_norm"
LEARNING_RATE = "learning_rate"

LOSS_KEYS = ("loss", "train_loss", "train/loss", "training_loss")
"""Common keys of the loss; the first that a run has is used."""

RANK_WAIT_SECONDS = "ranks/wait_seconds"
"""The end of the backward pass after a rank's own last gradient: the rank waits for those of the others."""

REPLICA_CHECKSUM = "replica_checksum"
"""Followed by a slash and a parameter: the sum of the absolute values of a sample of it."""

REPLICA_UPDATES = "ranks/updates"
"""The number of updates that the process had made when the checksums of its replica were read."""

ANOTHER_TRAINING_EVENT = "another_training"
"""Kind of event: from its step on, the same process trains another model."""

CHECKS_EVENT = "checks"
"""The kind of event with which an agent stores the results of a run's checks."""

IMPORTED = "imported"
"""The fact, the kind of event and the tag that say of a run that it was imported from another tool."""

STACKS_EVENT = "stack_samples"
"""Kind of event: the lines that the training thread was found running, sampled because of a cheap sign."""

EXPORTER_EVENT = "exporter"
"""Kind of event: how an exporter is doing, where that has changed."""

EXPORTER_DEVICE = "exporter-"
"""Followed by the name of an exporter: the device of the metrics about it."""

EXPORTER_FAILING = "stepscope/exporter_failing"
EXPORTER_VALUES = "stepscope/exporter_values_total"
EXPORTER_DROPPED = "stepscope/exporter_dropped_total"
EXPORTER_WAITING = "stepscope/exporter_waiting"

BATCH_SIZES = ("batch/tokens", "batch/samples", "batch_size", "samples_per_step")
"""The amount of work in a step; the first key that a run has is used."""


def phase_key(name: str) -> str:
    """The key of a phase's seconds."""
    return f"phase/{name}_seconds"


def device_key(name: str) -> str:
    """The key of a phase's seconds on the GPU's clock, in the steps that were timed with it."""
    return f"device/{name}_seconds"


def gap_key(name: str) -> str:
    """The key of the seconds between two steps."""
    return f"gap/{name}_seconds"
