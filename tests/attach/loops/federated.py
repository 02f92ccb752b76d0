"""Copies of a model are trained one after another, each with its own optimizer, and averaged by hand."""

import copy

import torch

torch.manual_seed(1)
STEPS = 60
model = torch.nn.Linear(8, 1)
losses = []
for _ in range(4):
    clients = []
    for _ in range(5):
        client = copy.deepcopy(model)
        optimizer = torch.optim.SGD(client.parameters(), lr=1e-2)
        for _ in range(3):
            loss = client(torch.randn(4, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        clients.append(client)
    with torch.no_grad():
        for parameter, *parts in zip(model.parameters(), *(c.parameters() for c in clients), strict=True):
            parameter.copy_(sum(parts) / len(parts))
