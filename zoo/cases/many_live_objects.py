"""Millions of small objects are alive, and each step makes new ones: full collections take long."""

import torch
from setting import DOSE, batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

index = [{"id": i, "tags": [i]} for i in range(int(700_000 * DOSE))]
recent = []
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent = [{"step": [i]} for i in range(20_000)] + recent[:20_000]
        monitor.log_training_step(loss=loss, optimizer=optimizer)
