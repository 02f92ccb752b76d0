"""Each step looks through everything that was logged before."""

import torch
from setting import DOSE, batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

history = []
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(800))):
        losses = cross_entropy(model(x), y, reduction="none")
        loss = losses.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.extend(losses.tolist()[: int(64 * DOSE)])
        median = sorted(history)[len(history) // 2]
        monitor.log({"median_loss": median})
        monitor.log_training_step(loss=loss, optimizer=optimizer)
