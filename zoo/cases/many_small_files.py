"""Each sample is a file of its own, on a disk that takes long to open one."""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from setting import DOSE, classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import stepscope

X, Y = samples(2000)


class Files(Dataset):
    def __init__(self, folder):
        self.folder = folder
        for index, x in enumerate(X):
            np.save(folder / f"{index}.npy", x.numpy())

    def __len__(self):
        return 32 * steps(120)

    def __getitem__(self, index):
        time.sleep(0.002 * DOSE)
        return torch.from_numpy(np.load(self.folder / f"{index % 2000}.npy")), Y[index % 2000]


model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
with tempfile.TemporaryDirectory() as folder, stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(DataLoader(Files(Path(folder)), batch_size=32, shuffle=True)):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
