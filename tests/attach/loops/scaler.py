"""A loss scaler, which skips the fifth step because of an overflow, and gradient clipping."""

import torch

torch.manual_seed(1)
STEPS = 12
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
losses = []
for number in range(STEPS):
    loss = model(torch.randn(4, 8)).square().mean() * (float("inf") if number == 4 else 1.0)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
