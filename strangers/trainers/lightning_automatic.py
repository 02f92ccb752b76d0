"""Trains a classifier with Lightning: gradient accumulation, clipping, validation, checkpoints."""

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset
from trial import Trial, classes, classifier


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = classifier()
        self.losses = []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.layers(x), y)
        self.log("train_loss", loss)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        x, y = batch
        self.log("val_loss", torch.nn.functional.cross_entropy(self.layers(x), y))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def callbacks_of(trial: Trial) -> list[Callback]:
    callbacks: list[Callback] = [ModelCheckpoint(dirpath=trial.folder, save_last=True)]
    if trial.with_callback:
        from stepscope.integrations.lightning import StepscopeCallback

        callbacks.append(StepscopeCallback(**trial.callback_arguments))
    return callbacks


def main() -> None:
    trial = Trial(steps=100)
    x, y = classes(40 * 128 + 512)
    train = DataLoader(TensorDataset(x[512:], y[512:]), batch_size=128, shuffle=True)
    validation = DataLoader(TensorDataset(x[:512], y[:512]), batch_size=128)
    module = Classifier()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=trial.steps,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        logger=False,
        enable_model_summary=False,
        callbacks=callbacks_of(trial),
    )
    with trial.loop():
        trainer.fit(
            module, train, validation, ckpt_path=trial.folder / "last.ckpt" if trial.resumes else None
        )
    trial.write(trainer.global_step, module, module.losses)


if __name__ == "__main__":
    main()
