"""Nothing is wrong: an autoencoder with a squared error that falls slowly."""

import torch
from setting import batches, samples, steps
from torch.nn.functional import mse_loss

import stepscope

model = torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.GELU(), torch.nn.Linear(128, 256))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, _y in monitor.batches(batches(*samples(), steps(300))):
        loss = mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
