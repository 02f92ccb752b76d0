"""A print in the compiled model makes PyTorch leave the graph in each step."""

import torch
from setting import batches, samples, steps
from torch.nn.functional import cross_entropy

import stepscope


class Printing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = torch.nn.Linear(256, 512), torch.nn.Linear(512, 10)

    def forward(self, x):
        hidden = torch.relu(self.inner(x))
        print(float(hidden.mean()))
        return self.head(hidden)


model = torch.compile(Printing(), backend="eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
