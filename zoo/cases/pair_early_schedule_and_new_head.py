"""The schedule ends early, and the optimizer does not have the new head."""

import torch
from setting import batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
model[4] = torch.nn.Linear(model[4].in_features, 10)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
