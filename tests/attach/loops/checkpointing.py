"""Activation checkpointing of both kinds: one calls `backward` within `backward`."""

import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(1)
STEPS = 8


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = (torch.nn.Linear(8, width) for width in (8, 8, 1))

    def forward(self, x):
        x = checkpoint(self.first, x, use_reentrant=True)
        return self.last(checkpoint(self.second, x, use_reentrant=False))


model = Net()
optimizer = torch.optim.Adam(model.parameters())
losses = []
for _ in range(STEPS):
    loss = model(torch.randn(4, 8, requires_grad=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
