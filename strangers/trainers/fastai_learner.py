"""Trains a classifier with fastai's Learner, whose optimizers are not PyTorch's."""

import torch
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.metrics import accuracy
from torch.utils.data import TensorDataset
from trial import Trial, classes, classifier


class KeepLosses(Callback):
    """Fastai's own list has smoothed losses."""

    def before_fit(self) -> None:
        self.losses = []

    def after_batch(self) -> None:
        if self.training:
            self.losses.append(self.loss.item())


def main() -> None:
    trial = Trial(steps=120)
    x, y = classes(30 * 256 + 512)
    train = DataLoader(TensorDataset(x[512:], y[512:]), bs=256, shuffle=True, num_workers=0)
    validation = DataLoader(TensorDataset(x[:512], y[:512]), bs=256, num_workers=0)
    model = classifier()
    kept = KeepLosses()
    learner = Learner(
        DataLoaders(train, validation, device="cpu"),
        model,
        loss_func=torch.nn.CrossEntropyLoss(),
        metrics=accuracy,
        cbs=kept,
        path=trial.folder,
    )
    with trial.loop():
        learner.fit(trial.steps // 30, 1e-3)
    trial.write(len(learner.recorder.losses), model, kept.losses)


if __name__ == "__main__":
    main()
