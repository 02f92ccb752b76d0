"""One optimizer for each parameter, which steps within the backward pass."""

import torch

torch.manual_seed(1)
STEPS = 10
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizers = {parameter: torch.optim.Adam([parameter], foreach=False) for parameter in model.parameters()}


def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(update)
losses = []
for _ in range(STEPS):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    losses.append(loss.item())
