"""Trains a language model with TRL's GRPO: text is generated within the steps."""

from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM
from trial import Trial
from trl import GRPOConfig, GRPOTrainer
from trl_sft import WORDS, tokenizer_of


def brevity(completions: list[str], **_: object) -> list[float]:
    """Rewards texts with few words."""
    return [-float(len(set(text.split()))) for text in completions]


def main() -> None:
    trial = Trial(steps=60)
    callbacks = []
    if trial.with_callback:
        from stepscope.integrations.transformers import StepscopeCallback

        callbacks.append(StepscopeCallback(**trial.callback_arguments))
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=203,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=2,
        )
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=brevity,
        args=GRPOConfig(
            output_dir=str(trial.folder / "checkpoints"),
            max_steps=trial.steps,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=12,
            learning_rate=1e-4,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_dict({"prompt": [" ".join(WORDS[n : n + 6]) for n in range(150)]}),
        processing_class=tokenizer_of(WORDS),
        callbacks=callbacks,
    )
    with trial.loop():
        trainer.train()
    trial.write(trainer.state.global_step, model)


if __name__ == "__main__":
    main()
