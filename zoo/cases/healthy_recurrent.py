"""Nothing is wrong: a recurrent network with clipped gradients."""

import torch
from setting import batches, samples, steps
from torch.nn.functional import cross_entropy

import stepscope


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(8, 64, batch_first=True)
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.gru(x.view(-1, 32, 8))[1][0])


model = Recurrent()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
