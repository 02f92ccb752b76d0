"""A training in a thread, as behind a graphical interface; then another one in a second thread."""

import threading

import torch

torch.manual_seed(1)
STEPS = 16
model = torch.nn.Linear(8, 1)
losses = []


def train():
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(8):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


for _ in range(2):
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
