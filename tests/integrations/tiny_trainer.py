"""A tiny language model and a Transformers `Trainer` for it, as the tests of callbacks use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils.data import IterableDataset

EXAMPLES = 22


def tiny_model() -> Any:
    """A GPT-2 with a thousand parameters, the same each time."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 16, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM")
    )


def tiny_data(count: int = EXAMPLES) -> list[dict[str, Any]]:
    rows = torch.randint(0, 16, (count, 6), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row} for row in rows]


class Stream(IterableDataset):
    """Examples without a length."""

    def __iter__(self):
        yield from tiny_data()


def tiny_trainer(
    folder: Path,
    callbacks: list[Any],
    *,
    trainer_options: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A trainer of two epochs of eleven batches each."""
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": 2,
        "num_train_epochs": 2,
        "logging_steps": 1,
        "save_strategy": "no",
        "learning_rate": 1e-2,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 7,
        **options,
    }
    return transformers.Trainer(
        **{
            "model": tiny_model(),
            "args": transformers.TrainingArguments(str(folder), **arguments),
            "train_dataset": tiny_data(),
            "eval_dataset": tiny_data(100),  # an evaluation of less than a millisecond is not counted as one
            "callbacks": callbacks,
            **(trainer_options or {}),
        }
    )


def losses_of(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
