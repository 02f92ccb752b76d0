"""Some backward passes fail, as when memory runs out; the program tries the batch again."""

import torch

torch.manual_seed(1)
STEPS = 12


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(_context, x):
        return x.clone()

    @staticmethod
    def backward(_context, _gradient):
        raise RuntimeError("out of memory")


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
losses = []
for number in range(STEPS):
    optimizer.zero_grad()
    if number % 5 == 2:
        try:
            Failing.apply(model(torch.randn(4, 8)).square().mean()).backward()
        except RuntimeError:
            optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
