"""Trains a classifier with the Runner of MMEngine."""

import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch.utils.data import DataLoader, TensorDataset
from trial import Trial, classes, classifier


class Classifier(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        self.layers = classifier()
        self.losses = []

    def forward(self, x: torch.Tensor, y: torch.Tensor, mode: str = "tensor") -> object:
        scores = self.layers(x)
        if mode != "loss":
            return scores
        loss = torch.nn.functional.cross_entropy(scores, y)
        self.losses.append(loss.detach())
        return {"loss": loss}


def main() -> None:
    trial = Trial(steps=120)
    model = Classifier()
    runner = Runner(
        model=model,
        work_dir=str(trial.folder / "work"),
        train_dataloader=DataLoader(TensorDataset(*classes(40 * 256)), batch_size=256, shuffle=True),
        train_cfg={"by_epoch": True, "max_epochs": trial.steps // 40},
        optim_wrapper={"optimizer": {"type": "Adam", "lr": 1e-3}},
        log_level="WARNING",
    )
    with trial.loop():
        runner.train()
    trial.write(runner.iter, model, model.losses)


if __name__ == "__main__":
    main()
