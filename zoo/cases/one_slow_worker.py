"""One of two loader workers is ten times slower than the other."""

import time

import torch
from setting import DOSE, classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, get_worker_info

import stepscope

X, Y = samples(64 * steps(200))


class Shards(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        time.sleep(0.001 * DOSE if get_worker_info().id == 1 else 0.0001 * DOSE)
        return X[index], Y[index]


model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Shards(), batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(loader):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
