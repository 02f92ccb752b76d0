"""Nothing is wrong: an embedding whose gradients are sparse."""

import torch
from setting import steps
from torch.nn.functional import cross_entropy

import stepscope


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(20_000, 64, sparse=True)
        self.head = torch.nn.Linear(64, 10)

    def forward(self, ids):
        return self.head(self.embedding(ids))


def texts(count):
    for _ in range(count):
        y = torch.randint(10, (64,))
        yield torch.randint(2000, (64, 40)) + 2000 * y[:, None], y


model = Words()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(texts(steps(400))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
