"""The names under which what every run has in common is recorded."""

from __future__ import annotations

PHASES = ("data", "transfer", "forward", "backward", "optimizer", "checkpoint", "eval", "other")
"""What a step consists of, in order."""

STEP_SECONDS = "step_seconds"
SAMPLED_RATIO = "phase/sampled_ratio"
"""How likely a step was to be timed phase by phase: such a step stands for as many as its inverse."""

STARTUP_SECONDS = "gap/startup_seconds"
"""From the beginning of the recording to that of the first step."""

EPOCH_GAP_SECONDS = "gap/epoch_seconds"
"""Between two passes over the data, without evaluations and checkpoints: loaders and workers come and go."""

EVAL_GAP_SECONDS = "gap/eval_seconds"
"""An evaluation between two steps; `phase/eval_seconds` has it too, and those within steps."""

CHECKPOINT_GAP_SECONDS = "gap/checkpoint_seconds"
"""Writing checkpoints between two steps; `phase/checkpoint_seconds` has it too, and those within steps."""

OVERHEAD_RATIO = "stepscope/overhead_ratio"
"""The share of the training thread's time that went into recording, beside the user's own log calls."""

GRADIENT_NORM = "gradient_norm"
LEARNING_RATE = "learning_rate"

LOSS_KEYS = ("loss", "train_loss", "train/loss", "training_loss")
"""What people call the loss; the first that a run has is meant."""

RANK_WAIT_SECONDS = "ranks/wait_seconds"
"""What is left of the backward pass after a rank's own last gradient: it waits for the others' to arrive."""

CHECKS_EVENT = "checks"
"""The kind of event by which an agent keeps what the checks of a run came to."""

BATCH_SIZES = ("batch/tokens", "batch/samples", "batch_size", "samples_per_step")
"""How much work a step does; the first that a run has is meant."""


def phase_key(name: str) -> str:
    """The key under which a phase's seconds are recorded."""
    return f"phase/{name}_seconds"


def device_key(name: str) -> str:
    """The same for what it took on the clock of a GPU, in the steps that were timed by that."""
    return f"device/{name}_seconds"


def gap_key(name: str) -> str:
    """The same for what lies between two steps."""
    return f"gap/{name}_seconds"
