"""A new optimizer for the same model in each phase of a training."""

import torch

torch.manual_seed(1)
STEPS = 4 * 5
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
losses = []
for rate in (1e-1, 1e-2, 1e-3, 1e-4):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(5):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
