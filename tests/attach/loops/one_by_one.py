"""A trainer that calls a closure, in the way of skorch: the optimizer steps with a function."""

import torch

torch.manual_seed(1)
STEPS = 12


class Net:
    def __init__(self):
        self.module_ = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
        self.optimizer_ = torch.optim.SGD(self.module_.parameters(), lr=1e-2)
        self.history = []

    def train_step(self, x):
        def step_function():
            self.optimizer_.zero_grad()
            loss = self.module_(x).square().mean()
            loss.backward()
            self.history.append(loss.item())
            return loss

        self.module_.train()
        self.optimizer_.step(step_function)

    def fit(self):
        for _ in range(3):
            for x in torch.randn(4, 4, 8):
                self.train_step(x)
            self.module_.eval()
            with torch.no_grad():
                self.module_(torch.randn(4, 8))


net = Net()
net.fit()
model, losses = net.module_, net.history
