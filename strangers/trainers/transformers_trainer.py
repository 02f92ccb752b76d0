"""Trains a language model with the Trainer of Transformers: accumulation, evaluation, checkpoints."""

import numpy as np
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from trial import Trial

WORDS, LENGTH = 200, 48


def sentences(count: int, seed: int) -> list[dict[str, np.ndarray]]:
    """Sequences that repeat with a period: something to learn."""
    generator = np.random.default_rng(seed)
    starts = generator.integers(0, WORDS, size=(count, 6))
    ids = np.tile(starts, LENGTH // 6)
    return [{"input_ids": row, "labels": row} for row in ids]


def callbacks_of(trial: Trial) -> list[TrainerCallback]:
    if not trial.with_callback:
        return []
    from stepscope.integrations.transformers import StepscopeCallback

    return [StepscopeCallback(**trial.callback_arguments)]


def main() -> None:
    trial = Trial(steps=60)
    config = GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=128, n_layer=2, n_head=4)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir=str(trial.folder / "checkpoints"),
            max_steps=trial.steps,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=30,
            save_steps=30,
            report_to="none",
            use_cpu=True,
            seed=0,
        ),
        train_dataset=sentences(480, seed=0),
        eval_dataset=sentences(64, seed=1),
        callbacks=callbacks_of(trial),
    )
    with trial.loop():
        trainer.train(resume_from_checkpoint=trial.resumes)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    trial.write(trainer.state.global_step, trainer.model, losses)


if __name__ == "__main__":
    main()
