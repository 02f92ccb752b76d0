"""The names under which what every run has in common is recorded."""

from __future__ import annotations

PHASES = ("data", "transfer", "forward", "backward", "optimizer", "checkpoint", "eval", "other")
"""What a step consists of, in order."""

STEP_SECONDS = "step_seconds"
SAMPLED_RATIO = "phase/sampled_ratio"
"""How likely a step was to be timed phase by phase: such a step stands for as many as its inverse."""

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
