"""Trains a classifier three times in one process: cross-validation with skorch and scikit-learn."""

import torch
from sklearn.model_selection import cross_validate
from skorch import NeuralNetClassifier
from trial import Trial, classes, classifier


def main() -> None:
    trial = Trial(steps=120)
    x, y = classes(15360)
    net = NeuralNetClassifier(
        classifier,
        criterion=torch.nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=1e-3,
        max_epochs=1,
        batch_size=256,
        train_split=None,
        device="cpu",
        verbose=0,
    )
    with trial.loop():
        results = cross_validate(net, x.numpy(), y.numpy(), cv=3, return_estimator=True)
    nets = results["estimator"]
    losses = [batch["train_loss"] for net in nets for epoch in net.history for batch in epoch["batches"]]
    trial.write(len(losses), torch.nn.ModuleList([net.module_ for net in nets]), losses)


if __name__ == "__main__":
    main()
