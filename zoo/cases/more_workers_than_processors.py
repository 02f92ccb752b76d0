"""Twelve loader workers with work to do compete with the training for two processors."""

import numpy as np
import torch
from setting import DOSE, classifier, samples, steps
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import stepscope

X, Y = samples(64 * steps(150))


class Augmented(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        image = X[index].numpy()
        for _ in range(150):
            image = np.sort(image)
        return torch.from_numpy(image), Y[index]


model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(
    Augmented(), batch_size=64, shuffle=True, num_workers=int(12 * DOSE), persistent_workers=True
)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(loader):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log_training_step(loss=loss, optimizer=optimizer)
