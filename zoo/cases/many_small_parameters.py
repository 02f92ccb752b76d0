"""Six hundred small tensors are updated one after another."""

import torch
from setting import DOSE, batches, samples, steps
from torch.nn.functional import cross_entropy

import stepscope


class Scales(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = torch.nn.ParameterList(torch.ones(256) for _ in range(int(600 * DOSE)))
        self.head = torch.nn.Linear(256, 10)

    def forward(self, x):
        return self.head(x * torch.stack(list(self.scales)).mean(0))


model = Scales()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(1500))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
