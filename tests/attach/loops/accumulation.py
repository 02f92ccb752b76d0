"""Gradients of four batches are accumulated, and each loss is divided by four; the last step has only two."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
STEPS = 3
data = TensorDataset(torch.randn(40, 8), torch.randn(40, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
losses, parts = [], []
for number, (x, y) in enumerate(DataLoader(data, batch_size=4)):
    loss = torch.nn.functional.mse_loss(model(x), y)
    (loss / 4).backward()
    parts.append(loss.item())
    if number % 4 == 3 or number == 9:
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(parts) / len(parts))
        parts = []
