"""Records a Transformers `Trainer`: steps, phases, evaluations, checkpoints, and a training that is resumed.

Needs transformers: pip install 'stepscope[transformers]'
"""

import sys
import tempfile


def main() -> None:
    """Trains a tiny language model from scratch, and continues from its checkpoint."""
    try:
        import torch
        import transformers

        from stepscope.integrations.transformers import StepscopeCallback
    except ImportError:
        sys.exit("This example needs transformers. Install it with: pip install 'stepscope[transformers]'")

    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(0)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 64, (96, 16), generator=generator).sort(dim=1).values
    examples = [{"input_ids": row, "labels": row} for row in ids]
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )

    def trainer_of(epochs: int, folder: str) -> transformers.Trainer:
        args = transformers.TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            learning_rate=3e-3,
            logging_steps=1,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        return transformers.Trainer(
            transformers.GPT2LMHeadModel(config),
            args,
            train_dataset=examples[:80],
            eval_dataset=examples[80:],
            callbacks=[StepscopeCallback(run="transformers-trainer", project="examples")],
        )

    with tempfile.TemporaryDirectory() as folder:
        trainer_of(3, folder).train()
        trainer = trainer_of(5, folder)
        trainer.train(resume_from_checkpoint=True)  # continues the run, in another segment
    print(f"steps: {trainer.state.global_step}, next: stepscope show transformers-trainer")


if __name__ == "__main__":
    main()
