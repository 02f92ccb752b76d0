"""After a warm-up the learning rate is a hundred times too high."""

import torch
from setting import DOSE, batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

model = classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(batches(*samples(), steps(300)))):
        if step == 100:
            optimizer.param_groups[0]["lr"] = 5 * DOSE
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
