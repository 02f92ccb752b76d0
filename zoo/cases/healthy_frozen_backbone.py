"""Nothing is wrong: only the head is trained, the rest is frozen."""

import torch
from setting import batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

model = classifier()
model[:4].requires_grad_(requires_grad=False)
optimizer = torch.optim.AdamW(model[4].parameters(), lr=1e-3)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
