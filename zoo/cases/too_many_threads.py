"""PyTorch computes with sixteen threads on two processors."""

import torch
from setting import DOSE, batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

torch.set_num_threads(int(16 * DOSE))
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(200), size=256)):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
