"""Large checkpoints every ten steps, and a long evaluation every five."""

import os
import tempfile

import torch
from setting import batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

held_out = samples(12_000)
ballast = torch.zeros(20_000_000)
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(batches(*samples(), steps(200)))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
        if step % 5 == 4:
            model.eval()
            with torch.no_grad():
                model(held_out[0])
            model.train()
        if step % 10 == 9:
            with tempfile.TemporaryFile() as file:
                torch.save({"model": model.state_dict(), "state": ballast}, file)
                os.fsync(file.fileno())
