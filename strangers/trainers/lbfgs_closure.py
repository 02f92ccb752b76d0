"""Fits a small network with LBFGS, which evaluates the loss several times within a step."""

import torch
from trial import Trial, classes, classifier


def main() -> None:
    trial = Trial(steps=40)
    x, y = classes(1024)
    model = classifier(hidden=256)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=8)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    with trial.loop():
        losses = [optimizer.step(closure).item() for _ in range(trial.steps)]
    trial.write(len(losses), model, losses)


if __name__ == "__main__":
    main()
