"""A plain loop with a loader, two epochs and an evaluation after each."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
STEPS = 16
data = TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(data, batch_size=4, shuffle=True)
losses = []
for _epoch in range(2):
    model.train()
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        for x, _ in DataLoader(data, batch_size=8):
            model(x)
