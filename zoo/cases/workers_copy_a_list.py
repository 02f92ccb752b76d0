"""The dataset is a list of dictionaries: workers copy its pages by counting references."""

import random
import time

import torch
from setting import DOSE, classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import stepscope

X, Y = samples()


class Records(Dataset):
    def __init__(self):
        self.rows = [{"path": f"images/{i}.png", "index": i % 4096, "more": [i]} for i in range(600_000)]

    def __len__(self):
        return 64 * steps(1500)

    def __getitem__(self, index):
        for _ in range(int(40 * DOSE)):
            row = self.rows[random.randrange(len(self.rows))]
        return X[row["index"]], Y[row["index"]]


model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = DataLoader(Records(), batch_size=64, num_workers=2)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(loader):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        monitor.log_training_step(loss=loss, optimizer=optimizer)
