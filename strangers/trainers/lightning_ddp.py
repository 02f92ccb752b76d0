"""Trains a classifier with Lightning on two processes, which Lightning starts: `ddp` or `ddp_spawn`."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset
from trial import Trial, classes, classifier


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = classifier()

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.layers(x), y)
        self.log("train_loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(strategy: str = "ddp") -> None:
    trial = Trial(steps=120)
    loader = DataLoader(TensorDataset(*classes(40 * 256)), batch_size=128, shuffle=True)
    module = Classifier()
    callbacks = []
    if trial.with_callback:
        from stepscope.integrations.lightning import StepscopeCallback

        callbacks.append(StepscopeCallback(**trial.callback_arguments))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=strategy,
        max_steps=trial.steps,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        callbacks=callbacks,
    )
    with trial.loop():
        trainer.fit(module, loader)
    if trainer.is_global_zero:
        # Of spawned processes, only the weights come back: fit returns when max_steps are done.
        steps = trainer.global_step if strategy == "ddp" else trial.steps
        trial.write(steps, module, [trainer.callback_metrics["train_loss"]])


if __name__ == "__main__":
    main()
