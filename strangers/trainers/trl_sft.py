"""Fine-tunes a language model on text with TRL's SFTTrainer."""

import inspect

import numpy as np
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trial import Trial
from trl import SFTConfig, SFTTrainer

WORDS = [f"word{number}" for number in range(200)]


def tokenizer_of(words: list[str]) -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<unk>", "</s>", *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="</s>"
    )


def texts(count: int) -> Dataset:
    generator = np.random.default_rng(0)
    lines = [" ".join([WORDS[n] for n in generator.integers(0, 200, 8)] * 4) for _ in range(count)]
    return Dataset.from_dict({"text": lines})


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
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=2,
        )
    )
    # Older versions of TRL call the tokenizer by its name.
    name = (
        "processing_class" if "processing_class" in inspect.signature(SFTTrainer).parameters else "tokenizer"
    )
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=str(trial.folder / "checkpoints"),
            max_steps=trial.steps,
            per_device_train_batch_size=16,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            dataset_text_field="text",
        ),
        train_dataset=texts(320),
        callbacks=callbacks,
        **{name: tokenizer_of(WORDS)},
    )
    with trial.loop():
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    trial.write(trainer.state.global_step, model, losses)


if __name__ == "__main__":
    main()
