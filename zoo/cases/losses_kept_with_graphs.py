"""The loop keeps every loss with its graph."""

import time

import torch
from setting import DOSE, batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

kept = []
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(800), size=256)):
        loss = cross_entropy(model(x), y)
        kept.append(loss * loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03 / DOSE)
        monitor.log_training_step(loss=loss, optimizer=optimizer)
