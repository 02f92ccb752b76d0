"""Trains a classifier with the engine of PyTorch-Ignite, and evaluates it after each epoch."""

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy
from torch.utils.data import DataLoader, TensorDataset
from trial import Trial, classes, classifier


def main() -> None:
    trial = Trial(steps=120)
    x, y = classes(30 * 256 + 512)
    train = DataLoader(TensorDataset(x[512:], y[512:]), batch_size=256, shuffle=True)
    validation = DataLoader(TensorDataset(x[:512], y[:512]), batch_size=256)
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.cross_entropy)
    evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy()})
    losses: list[float] = []

    @trainer.on(Events.ITERATION_COMPLETED)
    def keep_loss(engine: Engine) -> None:
        losses.append(engine.state.output)

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(_: Engine) -> None:
        evaluator.run(validation)

    with trial.loop():
        trainer.run(train, max_epochs=trial.steps // 30)
    trial.write(trainer.state.iteration, model, losses)


if __name__ == "__main__":
    main()
