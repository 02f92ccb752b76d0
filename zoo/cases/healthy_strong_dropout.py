"""Nothing is wrong: strong dropout makes the training loss higher than that of validation."""

import torch
from setting import batches, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

held_out = samples(1024)
model = torch.nn.Sequential(
    torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Dropout(0.9), torch.nn.Linear(1024, 10)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(batches(*samples(), steps(400)))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
        if step % 50 == 49:
            model.eval()
            with torch.inference_mode():
                monitor.log({"val_loss": cross_entropy(model(held_out[0]), held_out[1])}, step=step)
            model.train()
