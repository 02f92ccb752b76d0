"""A recurrent network with large recurrent weights, and no clipping."""

import torch
from setting import DOSE, batches, samples, steps
from torch.nn.functional import cross_entropy

import stepscope


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.RNN(8, 64, nonlinearity="relu", batch_first=True)
        self.head = torch.nn.Linear(64, 10)
        torch.nn.init.orthogonal_(self.rnn.weight_hh_l0, gain=1.0 + 0.8 * DOSE)

    def forward(self, x):
        return self.head(self.rnn(x.view(-1, 32, 8))[1][0])


model = Recurrent()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
