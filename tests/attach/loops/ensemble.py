"""Three models and their optimizers are created first, and trained one after another, twice."""

import torch

torch.manual_seed(1)
STEPS = 24
models = [torch.nn.Linear(8, 1) for _ in range(3)]
optimizers = [torch.optim.Adam(model.parameters()) for model in models]
losses = []
for _ in range(2):
    for model, optimizer in zip(models, optimizers, strict=True):
        for _ in range(4):
            loss = model(torch.randn(4, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
