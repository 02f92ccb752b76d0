"""The data of rank 1 comes 30 ms later than that of rank 0."""

import time

import torch
import torch.distributed as dist
from setting import DOSE, classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import stepscope


def slow_batches(count):
    x, y = samples()
    for begin in range(count):
        if dist.get_rank() == 1:
            time.sleep(0.03 * DOSE)
        chosen = torch.arange(64 * begin, 64 * begin + 64) % len(x)
        yield x[chosen], y[chosen]


dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DistributedDataParallel(classifier())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(slow_batches(steps(150))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
dist.destroy_process_group()
