"""Nothing is wrong: gradients of four batches are added for each step."""

import torch
from setting import batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(batches(*samples(), 4 * steps(200)))):
        loss = cross_entropy(model(x), y)
        (loss / 4).backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
            monitor.log_training_step(loss=loss, optimizer=optimizer)
