"""The backward pass of rank 1 takes 30 ms longer than that of rank 0."""

import time

import torch
import torch.distributed as dist
from setting import DOSE, batches, classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import stepscope


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if dist.get_rank() == 1:
            time.sleep(0.03 * DOSE)
        return gradient


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = classifier()

    def forward(self, x):
        return self.inner[1:](Slow.apply(self.inner[0](x)))


dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DistributedDataParallel(Network())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(150))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
dist.destroy_process_group()
