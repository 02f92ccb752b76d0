"""Rollouts without gradients, then several epochs of minibatches over each: one policy with two heads."""

import torch

torch.manual_seed(1)
STEPS = 3 * 2 * 4


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 16)
        self.action, self.value = torch.nn.Linear(16, 2), torch.nn.Linear(16, 1)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=3e-4)

    def evaluate(self, states):
        hidden = torch.tanh(self.body(states))
        return torch.distributions.Categorical(logits=self.action(hidden)), self.value(hidden)


model = Policy()
losses = []
for _ in range(3):
    model.eval()
    with torch.no_grad():
        states = torch.randn(32, 4)
        distribution, _ = model.evaluate(states)
        actions = distribution.sample()
        before = distribution.log_prob(actions)
    model.train()
    for _ in range(2):
        for part in torch.randperm(32).split(8):
            distribution, value = model.evaluate(states[part])
            ratio = (distribution.log_prob(actions[part]) - before[part]).exp()
            loss = -ratio.mean() + value.square().mean()
            model.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            model.optimizer.step()
            losses.append(loss.item())
