"""A few samples are far slower than the others: about one batch in twenty comes late."""

import time

import torch
from setting import DOSE, classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import stepscope

X, Y = samples(64 * steps(400))


class Clips(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        if index % 1280 == 0:
            time.sleep(0.2 * DOSE)
        return X[index], Y[index]


model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Clips(), batch_size=64, shuffle=True, num_workers=1, persistent_workers=True)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(loader):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
