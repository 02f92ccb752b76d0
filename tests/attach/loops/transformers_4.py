"""The Trainer of Transformers with a tiny GPT-2, which accumulates the gradients of 4 batches (slow)."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(1)
STEPS = 6
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=16))
data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (24 * 4, 8))]
arguments = TrainingArguments(
    tempfile.mkdtemp(),
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    num_train_epochs=2,
    logging_steps=2,
    eval_strategy="epoch",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8])
trainer.train()
losses = []
