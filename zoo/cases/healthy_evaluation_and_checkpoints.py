"""Nothing is wrong: evaluations and checkpoints are short and rare."""

from pathlib import Path

import torch
from setting import batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

held_out = samples(1024)
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(batches(*samples(), steps(400)))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
        if step % 100 == 99:
            model.eval()
            with torch.inference_mode():
                monitor.log({"val_loss": cross_entropy(model(held_out[0]), held_out[1])}, step=step)
            model.train()
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "new.pt"
            )
            Path("new.pt").replace("checkpoint.pt")
