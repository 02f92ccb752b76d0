"""Three models one after another; after the last step of each, its gradient is computed once more."""

import torch

torch.manual_seed(1)
STEPS = 3 * 8
losses, models = [], []
for _ in range(3):
    model = torch.nn.Linear(8, 1)
    models.append(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for number in range(9):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if number < 8:
            optimizer.step()
            losses.append(loss.item())
