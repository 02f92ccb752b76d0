"""Nothing is wrong: a convolutional network with batch normalisation."""

import torch
from setting import batches, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

model = torch.nn.Sequential(
    torch.nn.Unflatten(1, (1, 16, 16)),
    torch.nn.Conv2d(1, 16, 3, padding=1),
    torch.nn.BatchNorm2d(16),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(16, 32, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(2048, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
