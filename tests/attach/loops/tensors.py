"""Plain tensors with an optimizer."""

import torch

torch.manual_seed(1)
STEPS = 12
weight = torch.randn(8, 1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1e-2)
losses = []
for _ in range(STEPS):
    loss = (torch.randn(4, 8) @ weight).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
models = [torch.nn.ParameterList([torch.nn.Parameter(weight)])]
