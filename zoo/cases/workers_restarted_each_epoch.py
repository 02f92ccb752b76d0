"""Epochs are short, and the loader starts its workers anew for each of them."""

import torch
from setting import DOSE, classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import stepscope

data = TensorDataset(*samples(64 * int(20 / DOSE)))
loader = DataLoader(
    data, sampler=BatchSampler(RandomSampler(data), 64, drop_last=False), batch_size=None, num_workers=2
)
model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for _epoch in range(int(steps(200) * DOSE / 20)):
        for x, y in monitor.batches(loader):
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.log_training_step(loss=loss, optimizer=optimizer)
