"""The loop keeps the outputs of all steps for statistics that it computes at the end."""

import time

import torch
from setting import DOSE, batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

hidden = []
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(800), size=256)):
        inner = model[:4](x)
        hidden.append(inner.detach().clone())
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03 / DOSE)
        monitor.log_training_step(loss=loss, optimizer=optimizer)
