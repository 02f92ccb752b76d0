"""A loader with worker processes."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
STEPS = 8
data = TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
losses = []
for x, y in DataLoader(data, batch_size=4, shuffle=True, num_workers=2):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
