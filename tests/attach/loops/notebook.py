"""Cells that are executed one after another, as in a notebook."""

import torch

torch.manual_seed(1)
STEPS = 9
cells = [
    "import torch\nmodel = torch.nn.Linear(8, 1)\nlosses = []",
    "optimizer = torch.optim.Adam(model.parameters())",
    """
def train(steps):
    for _ in range(steps):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
""",
    "train(4)",
    "train(5)",
]
namespace = {}
for cell in cells:
    exec(compile(cell, "<cell>", "exec"), namespace)
model, losses = namespace["model"], namespace["losses"]
