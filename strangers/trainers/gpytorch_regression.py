"""Fits a Gaussian process with GPyTorch: the whole data set in every step, and no loader."""

import gpytorch
import numpy as np
import torch
from trial import Trial


class Regression(gpytorch.models.ExactGP):
    def __init__(
        self, x: torch.Tensor, y: torch.Tensor, likelihood: gpytorch.likelihoods.GaussianLikelihood
    ) -> None:
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))


def main() -> None:
    trial = Trial(steps=100)
    generator = np.random.default_rng(0)
    x = torch.from_numpy(generator.uniform(-3, 3, (600, 2)).astype(np.float32))
    y = torch.sin(x.sum(1)) + 0.1 * torch.randn(600)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Regression(x, y, likelihood)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    model.train()
    likelihood.train()
    with trial.loop():
        for _ in range(trial.steps):
            optimizer.zero_grad()
            loss = -objective(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    trial.write(len(losses), model, losses)


if __name__ == "__main__":
    main()
