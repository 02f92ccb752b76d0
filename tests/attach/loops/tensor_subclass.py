"""Data of a class derived from Tensor, in the way of MONAI; so is the loss."""

import torch

torch.manual_seed(1)
STEPS = 12


class Image(torch.Tensor):
    pass


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for _ in range(STEPS):
    loss = model(torch.randn(4, 8).as_subclass(Image)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
