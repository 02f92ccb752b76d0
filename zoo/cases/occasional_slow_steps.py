"""Every fortieth step draws a picture of the weights."""

import time

import torch
from setting import DOSE, batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(batches(*samples(), steps(400)))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            time.sleep(0.15 * DOSE)
        monitor.log_training_step(loss=loss, optimizer=optimizer)
