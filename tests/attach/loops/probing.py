"""A trainer that tries how large its batches can be, and then resets the model."""

import copy

import torch

torch.manual_seed(1)
STEPS = 12
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
state = copy.deepcopy(model.state_dict())
for size in (4, 8, 16):
    model(torch.randn(size, 8)).square().mean().backward()
    optimizer.zero_grad()
    model.load_state_dict(state)
losses = []
for _ in range(STEPS):
    loss = model(torch.randn(8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
