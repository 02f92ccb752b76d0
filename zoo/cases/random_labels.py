"""The labels have nothing to do with the samples: the loss stays at chance."""

import torch
from setting import batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope

images, _ = samples(100_000)
labels = torch.randint(10, (len(images),))
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(images, labels, steps(600))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
