"""Nobody tells the sampler which epoch it is: each has the same order."""

import torch
import torch.distributed as dist
from setting import classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

import stepscope

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DistributedDataParallel(classifier())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
data = TensorDataset(*samples(64 * 100))
sampler = DistributedSampler(data)
loader = DataLoader(data, sampler=BatchSampler(sampler, 64, drop_last=False), batch_size=None)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for _epoch in range(steps(300) // 50):
        for x, y in monitor.batches(loader):
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.log_training_step(loss=loss, optimizer=optimizer)
dist.destroy_process_group()
