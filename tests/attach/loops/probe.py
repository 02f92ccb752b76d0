"""A probe on the features of a model, with an optimizer of its own that steps after every tenth step."""

import torch

torch.manual_seed(1)
STEPS = 60


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.head = torch.nn.Linear(8, 4), torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.features(x)))


class Probe(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)


net, probe = Net(), Probe()
models = [net, probe]
optimizer = torch.optim.Adam(net.parameters())
probe_optimizer = torch.optim.SGD(probe.parameters(), lr=1e-2)
losses = []
for number in range(STEPS):
    x = torch.randn(4, 8)
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if number % 10 == 9:
        with torch.no_grad():
            seen = torch.tanh(net.features(x))
        probe_loss = (probe(seen) - x[:, :1]).square().mean()
        probe_optimizer.zero_grad()
        probe_loss.backward()
        probe_optimizer.step()
