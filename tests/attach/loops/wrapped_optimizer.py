"""An optimizer that calls the step of another one, in the way of Lookahead."""

import torch

torch.manual_seed(1)
STEPS = 12


class Wrapper(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure=None):
        return self.inner.step(closure)


model = torch.nn.Linear(8, 1)
optimizer = Wrapper(torch.optim.Adam(model.parameters(), lr=1e-2))
losses = []
for _ in range(STEPS):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
