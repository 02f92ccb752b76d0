"""Every tenth step saves a checkpoint of 60 MB and waits for the disk."""

import os
import tempfile

import torch
from setting import DOSE, batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

ballast = torch.zeros(int(15_000_000 * DOSE))
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(batches(*samples(), steps(200)))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            with tempfile.TemporaryFile() as file:
                torch.save({"model": model.state_dict(), "state": ballast}, file)
                os.fsync(file.fileno())
        monitor.log_training_step(loss=loss, optimizer=optimizer)
