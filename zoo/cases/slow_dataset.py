"""A dataset sleeps for each sample, and the loader has no workers."""

import time

import torch
from setting import DOSE, classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import stepscope

X, Y = samples(64 * steps(150))


class Images(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        time.sleep(0.0005 * DOSE)
        return X[index], Y[index]


model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Images(), batch_size=64, shuffle=True)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(loader):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
