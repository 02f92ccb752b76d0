"""Plain tensors that are updated by hand, as in a first tutorial."""

import torch

torch.manual_seed(1)
STEPS = 12
weight = torch.randn(8, 1, requires_grad=True)
bias = torch.zeros(1, requires_grad=True)
losses = []
for _ in range(STEPS):
    loss = (torch.randn(4, 8) @ weight + bias).square().mean()
    loss.backward()
    for tensor in (weight, bias):
        tensor.data -= 1e-2 * tensor.grad.data
        tensor.grad.data.zero_()
    losses.append(loss.item())
models = [torch.nn.ParameterList([torch.nn.Parameter(weight), torch.nn.Parameter(bias)])]
