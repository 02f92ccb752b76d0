"""Gradients in half precision overflow again and again, and the scaler skips those steps."""

import torch
from setting import batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4)
model = classifier(width=128)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(batches(*samples(), steps(300), size=16))):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = cross_entropy(model(x), y) * (1e5 if step % 8 == 7 else 1.0)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
