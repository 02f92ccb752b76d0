"""LBFGS, which calls its closure several times in each step."""

import torch

torch.manual_seed(1)
STEPS = 6
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5)
x, y = torch.randn(16, 8), torch.randn(16, 1)
losses = []


def closure():
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for _ in range(STEPS):
    losses.append(optimizer.step(closure).item())
