"""Adversarial training: an optimizer of its own changes the inputs of each batch before the model learns."""

import torch

torch.manual_seed(1)
STEPS = 8
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
losses = []
for _ in range(STEPS):
    x = torch.randn(4, 8)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    change = torch.zeros(4, 8, requires_grad=True)
    attack = torch.optim.SGD([change], lr=0.1)
    for _ in range(3):
        attack.zero_grad()
        (-model(x + change).square().mean()).backward()
        attack.step()
