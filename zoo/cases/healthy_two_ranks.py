"""Nothing is wrong: two ranks with equal work."""

import torch
import torch.distributed as dist
from setting import batches, classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import stepscope

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DistributedDataParallel(classifier())
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
