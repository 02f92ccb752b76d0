"""A model whose parameters are updated by hand."""

import torch

torch.manual_seed(1)
STEPS = 12
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
losses = []
for _ in range(STEPS):
    loss = model(torch.randn(4, 8)).square().mean()
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(1e-2 * parameter.grad)
    losses.append(loss.item())
