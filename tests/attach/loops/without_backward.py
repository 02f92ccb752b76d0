"""Gradients from `torch.autograd.grad`, which the loop hands to an optimizer; there is no backward pass."""

import torch

torch.manual_seed(1)
STEPS = 8
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)
losses = []
for _ in range(STEPS):
    loss = model(torch.randn(4, 8)).square().mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()
