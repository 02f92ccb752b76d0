"""Two threads that begin to train at the same moment, and train alike: one of them is followed."""

import threading

import torch

torch.manual_seed(1)
STEPS = 12
data = torch.randn(STEPS, 4, 8)
models = [torch.nn.Linear(8, 1) for _ in range(2)]
models[1].load_state_dict(models[0].state_dict())
start = threading.Barrier(2)
losses = []


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for number, x in enumerate(data):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        if number == 0:
            start.wait()
        loss.backward()
        optimizer.step()
        if model is models[0]:
            losses.append(loss.item())


threads = [threading.Thread(target=train, args=(model,)) for model in models]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
