"""The samples are sorted by class, and the loader does not shuffle them."""

import torch
from setting import classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

import stepscope

x, y = samples(3200)
order = y.argsort()
data = TensorDataset(x[order], y[order])
loader = DataLoader(data, sampler=BatchSampler(SequentialSampler(data), 64, drop_last=False), batch_size=None)
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for _epoch in range(steps(400) // 50):
        for x, y in monitor.batches(loader):
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.log_training_step(loss=loss, optimizer=optimizer)
