"""Twelve layers with sigmoids and tiny weights: the first layers get next to no gradient."""

import torch
from setting import batches, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

layers = [torch.nn.Linear(256, 64), torch.nn.Sigmoid()]
for _ in range(12):
    layers += [torch.nn.Linear(64, 64), torch.nn.Sigmoid()]
model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 10))
for parameter in model.parameters():
    parameter.data.mul_(0.05)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
