"""Data comes late, and from step 100 on a layer takes the logarithm of zero."""

import time

import torch
from setting import batches, samples, steps
from torch.nn.functional import cross_entropy

import stepscope


class Logarithm(torch.nn.Module):
    smallest = 1e-6

    def forward(self, x):
        return torch.log(torch.relu(x) + self.smallest)


def slow_batches(count):
    for x, y in batches(*samples(), count):
        time.sleep(0.02)
        yield x, y


model = torch.nn.Sequential(torch.nn.Linear(256, 512), Logarithm(), torch.nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(slow_batches(steps(200)))):
        if step == 100:
            model[1].smallest = 0.0
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
