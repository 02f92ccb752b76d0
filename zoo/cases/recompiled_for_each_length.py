"""Each batch has another size, and the compiled model is compiled again for it."""

import random

import torch
from setting import batches, classifier, samples, steps
from torch._dynamo import config
from torch.nn.functional import cross_entropy

import stepscope

config.automatic_dynamic_shapes = False
model = torch.compile(classifier(), backend="eager", dynamic=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        size = random.randint(8, 64)
        loss = cross_entropy(model(x[:size]), y[:size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
