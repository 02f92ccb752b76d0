"""Each update by hand creates a new tensor."""

import torch

torch.manual_seed(1)
STEPS = 10
weight = torch.randn(8, 1, requires_grad=True)
losses = []
for _ in range(STEPS):
    loss = (torch.randn(4, 8) @ weight).square().mean()
    loss.backward()
    weight = (weight - 1e-2 * weight.grad).detach().requires_grad_()
    losses.append(loss.item())
models = [torch.nn.ParameterList([torch.nn.Parameter(weight)])]
