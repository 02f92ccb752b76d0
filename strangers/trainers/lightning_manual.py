"""Trains a classifier with Lightning's manual optimisation: an update for every second batch."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset
from trial import Trial, classes, classifier


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.layers = classifier()
        self.losses = []

    def training_step(self, batch: list[torch.Tensor], index: int) -> None:
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.layers(x), y)
        self.manual_backward(loss / 2)
        if (index + 1) % 2 == 0:
            optimizer = self.optimizers()
            self.clip_gradients(optimizer, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
            optimizer.step()
            optimizer.zero_grad()
        self.log("train_loss", loss)
        self.losses.append(loss.detach())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    trial = Trial(steps=100)
    loader = DataLoader(TensorDataset(*classes(50 * 128)), batch_size=128, shuffle=True)
    module = Classifier()
    callbacks = []
    if trial.with_callback:
        from stepscope.integrations.lightning import StepscopeCallback

        callbacks.append(StepscopeCallback(**trial.callback_arguments))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=trial.steps,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        callbacks=callbacks,
    )
    with trial.loop():
        trainer.fit(module, loader)
    trial.write(trainer.global_step, module, module.losses)


if __name__ == "__main__":
    main()
