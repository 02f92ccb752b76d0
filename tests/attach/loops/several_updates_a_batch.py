"""Three updates with each batch, without a loader: a list of tensors."""

import torch

torch.manual_seed(1)
STEPS = 15
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
losses = []
for x in torch.randn(5, 4, 8):
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
