"""A loop with Accelerate, which accumulates the gradients of 4 batches (slow)."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
ACCUMULATION = 4
STEPS = 2 * 8 // ACCUMULATION
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION)
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(32, 8), torch.randn(32, 1)), batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses, parts = [], []
for _ in range(2):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            parts.append(loss.item())
        if accelerator.sync_gradients:
            losses.append(sum(parts) / len(parts))
            parts = []
