"""The process is killed while it overwrites its only checkpoint."""

import os
import signal
from pathlib import Path

import torch
from setting import batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(batches(*samples(), steps(200)))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
        if step % 20 == 19:
            torch.save(model.state_dict(), "checkpoint.pt")
        if step == 159:
            whole = Path("checkpoint.pt").read_bytes()
            Path("checkpoint.pt").write_bytes(whole[: len(whole) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
