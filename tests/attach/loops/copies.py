"""Copies, pickles and saves model and optimizer in the middle of the training, and goes on with the copy."""

import copy
import io
import pickle

import torch

torch.manual_seed(1)
STEPS = 12
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters())
losses = []
for number in range(STEPS):
    if number == 6:
        model, optimizer = copy.deepcopy((model, optimizer))
        model, optimizer = pickle.loads(pickle.dumps((model, optimizer)))
        file = io.BytesIO()
        torch.save({"model": model, "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        torch.load(file, weights_only=False)
        torch.jit.script(model)
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
