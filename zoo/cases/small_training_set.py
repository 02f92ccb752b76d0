"""The training set has 64 samples: validation loss rises while training loss falls."""

import torch
from setting import batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

x_all, y_all = samples(1088)
x_few, y_few, x_held, y_held = x_all[:64], y_all[:64], x_all[64:], y_all[64:]
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for step, (x, y) in enumerate(monitor.batches(batches(x_few, y_few, steps(600), size=32))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
        if step % 20 == 19:
            model.eval()
            with torch.no_grad():
                monitor.log({"val_loss": cross_entropy(model(x_held), y_held)}, step=step)
            model.train()
