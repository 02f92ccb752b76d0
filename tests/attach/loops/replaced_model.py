"""The optimizer was created for a model that was replaced: its steps update nothing that is trained."""

import torch

torch.manual_seed(1)
STEPS = 30
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
model = torch.nn.Linear(8, 1)
losses = []
for _ in range(STEPS):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
models = [model]
