"""The model is evaluated every five steps, on much data."""

import torch
from setting import DOSE, batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

held_out = samples(int(6000 * DOSE))
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
                for begin in range(0, len(held_out[0]), 512):
                    model(held_out[0][begin : begin + 512])
            model.train()
