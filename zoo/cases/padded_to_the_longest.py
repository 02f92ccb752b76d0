"""Texts of about 60 tokens are padded to 512."""

import random

import torch
from setting import DOSE, steps
from torch import nn
from torch.nn.functional import cross_entropy

import stepscope

LENGTH = max(int(512 * DOSE), 128)


class Texts(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 32, padding_idx=0)
        self.mix = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, 10)

    def forward(self, input_ids, attention_mask):
        kept = self.mix(self.embedding(input_ids)) * attention_mask[..., None]
        return self.head(kept.sum(1) / attention_mask.sum(1, keepdim=True))


def texts(count):
    for _ in range(count):
        lengths = [random.randint(20, 100) for _ in range(16)]
        ids = torch.zeros(16, LENGTH, dtype=torch.long)
        y = torch.randint(10, (16,))
        for row, length in enumerate(lengths):
            ids[row, :length] = torch.randint(1, 100, (length,)) + 90 * y[row]
        yield {"input_ids": ids, "attention_mask": (ids != 0).float(), "labels": y}


model = Texts()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
prepared = list(texts(steps(800)))
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for batch in monitor.batches(prepared):
        loss = cross_entropy(model(batch["input_ids"], batch["attention_mask"]), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
