"""Fits a Bayesian regression with Pyro, which makes an optimizer for each parameter."""

import pyro
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal
from pyro.nn import PyroModule, PyroSample
from torch import nn
from trial import Trial, classes

FEATURES, HIDDEN = 64, 256


class Regression(PyroModule):
    def __init__(self) -> None:
        super().__init__()
        self.first = PyroModule[nn.Linear](FEATURES, HIDDEN)
        self.first.weight = PyroSample(
            pyro.distributions.Normal(0.0, 1.0).expand([HIDDEN, FEATURES]).to_event(2)
        )
        self.last = PyroModule[nn.Linear](HIDDEN, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        mean = self.last(torch.tanh(self.first(x))).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("observed", pyro.distributions.Normal(mean, 0.5), obs=y)
        return mean


def main() -> None:
    trial = Trial(steps=150)
    pyro.set_rng_seed(0)
    x, labels = classes(1024)
    y = labels.float()
    model = Regression()
    guide = AutoDiagonalNormal(model)
    inference = SVI(model, guide, pyro.optim.Adam({"lr": 1e-2}), Trace_ELBO())
    with trial.loop():
        losses = [inference.step(x, y) for _ in range(trial.steps)]
    trial.write(len(losses), guide, losses)


if __name__ == "__main__":
    main()
