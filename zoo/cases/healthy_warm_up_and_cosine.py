"""Nothing is wrong: the learning rate rises, then falls to zero at the planned end."""

import torch
from setting import batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=30)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps(300) - 30)
schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], [30])
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
