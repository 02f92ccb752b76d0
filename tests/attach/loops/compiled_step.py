"""A compiled function with the whole step (slow)."""

import torch

torch.manual_seed(1)
STEPS = 8
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)


@torch.compile(backend="aot_eager")
def train_step(x):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


losses = [train_step(torch.randn(4, 8)).item() for _ in range(STEPS)]
compilations = torch._dynamo.utils.counters["frames"]["total"]
