"""Trains embeddings with the trainer of PyTorch Metric Learning: two models, an optimizer for each."""

import torch
from pytorch_metric_learning import losses, samplers, trainers
from torch.utils.data import TensorDataset
from trial import Trial, classes, classifier


def main() -> None:
    trial = Trial(steps=120)
    points, labels = classes(8192)
    trunk, embedder = classifier(kinds=128), torch.nn.Linear(128, 32)
    seen: list[float] = []

    def keep_loss(trainer: trainers.MetricLossOnly) -> None:
        seen.append(trainer.losses["total_loss"].item())

    trainer = trainers.MetricLossOnly(
        models={"trunk": trunk, "embedder": embedder},
        optimizers={
            "trunk_optimizer": torch.optim.Adam(trunk.parameters(), lr=1e-4),
            "embedder_optimizer": torch.optim.Adam(embedder.parameters(), lr=1e-4),
        },
        batch_size=128,
        loss_funcs={"metric_loss": losses.ContrastiveLoss()},
        dataset=TensorDataset(points, labels),
        sampler=samplers.MPerClassSampler(labels, m=16, length_before_new_iter=40 * 128),
        dataloader_num_workers=0,
        end_of_iteration_hook=keep_loss,
    )
    with trial.loop():
        trainer.train(num_epochs=trial.steps // 40)
    trial.write(len(seen), torch.nn.ModuleList([trunk, embedder]), seen)


if __name__ == "__main__":
    main()
