"""A compiled model (slow)."""

import torch

torch.manual_seed(1)
STEPS = 8
inner = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
model = torch.compile(inner, backend="aot_eager")
optimizer = torch.optim.Adam(model.parameters())
losses = []
for _ in range(STEPS):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
compilations = torch._dynamo.utils.counters["frames"]["total"]
