"""Trains a model of sentence embeddings on pairs, with the trainer of Sentence Transformers."""

import numpy as np
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    models,
)
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from trial import Trial

WORDS = [f"word{number}" for number in range(200)]


def encoder_of(trial: Trial) -> SentenceTransformer:
    """A small encoder with random weights, saved as any encoder is, and loaded from its folder."""
    folder = str(trial.folder / "encoder")
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=204,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    words = models.Transformer(folder, max_seq_length=64)
    return SentenceTransformer(modules=[words, models.Pooling(128)], device="cpu")


def pairs(count: int) -> Dataset:
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 200, size=(count, 24))
    text = [" ".join(WORDS[number] for number in row) for row in rows]
    shuffled = [" ".join(generator.permutation(line.split())) for line in text]
    return Dataset.from_dict({"anchor": text, "positive": shuffled})


def main() -> None:
    trial = Trial(steps=60)
    callbacks = []
    if trial.with_callback:
        from stepscope.integrations.transformers import StepscopeCallback

        callbacks.append(StepscopeCallback(**trial.callback_arguments))
    model = encoder_of(trial)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(trial.folder / "checkpoints"),
            max_steps=trial.steps,
            per_device_train_batch_size=16,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
        ),
        train_dataset=pairs(320),
        loss=losses.MultipleNegativesRankingLoss(model),
        callbacks=callbacks,
    )
    with trial.loop():
        trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    trial.write(trainer.state.global_step, model, logged)


if __name__ == "__main__":
    main()
