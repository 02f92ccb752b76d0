"""From step 60 on, a layer takes the logarithm of zero."""

import torch
from setting import batches, samples, steps
from torch.nn.functional import cross_entropy

import stepscope


class Logarithm(torch.nn.Module):
    smallest = 1e-6

    def forward(self, x):
        return torch.log(torch.relu(x) + self.smallest)


model = torch.nn.Sequential(
    torch.nn.Linear(256, 2048),
    torch.nn.ReLU(),
    torch.nn.Linear(2048, 64),
    Logarithm(),
    torch.nn.Linear(64, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(batches(*samples(), steps(300)))):
        if step == 60:
            model[3].smallest = 0.0
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
