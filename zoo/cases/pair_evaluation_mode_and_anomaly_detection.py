"""The model stays in evaluation mode, and anomaly detection is on."""

import torch
from setting import batches, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

torch.autograd.set_detect_anomaly(True)
model = torch.nn.Sequential(
    torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(512, 10)
)
model.eval()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
