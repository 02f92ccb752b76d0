"""Trains a classifier with skorch: as scikit-learn does, with a validation split."""

import torch
from skorch import NeuralNetClassifier
from trial import Trial, classes, classifier


def main() -> None:
    trial = Trial(steps=120)
    x, y = classes(10240)
    net = NeuralNetClassifier(
        classifier,
        criterion=torch.nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=1e-3,
        max_epochs=trial.steps // 32,  # 8,192 samples are left for training
        batch_size=256,
        device="cpu",
        verbose=0,
    )
    with trial.loop():
        net.fit(x.numpy(), y.numpy())
    losses = [
        batch["train_loss"] for epoch in net.history for batch in epoch["batches"] if "train_loss" in batch
    ]
    trial.write(len(losses), net.module_, losses)


if __name__ == "__main__":
    main()
