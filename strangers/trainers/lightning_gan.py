"""Trains a GAN with Lightning's manual optimisation: two optimizers, both in every batch."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trial import Trial, classes, classifier

NOISE, FEATURES = 32, 64


class Gan(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = classifier(NOISE, 512, FEATURES)
        self.discriminator = classifier(FEATURES, 512, 1)
        self.losses = []
        self.batches = 0

    def training_step(self, batch: list[torch.Tensor]) -> None:
        (real,) = batch
        of_generator, of_discriminator = self.optimizers()
        made = self.generator(torch.randn(len(real), NOISE))
        judged = self.discriminator(torch.cat([real, made.detach()]))
        truth = torch.cat([torch.ones(len(real), 1), torch.zeros(len(made), 1)])
        loss = nn.functional.binary_cross_entropy_with_logits(judged, truth)
        of_discriminator.zero_grad()
        self.manual_backward(loss)
        of_discriminator.step()
        fooled = nn.functional.binary_cross_entropy_with_logits(
            self.discriminator(made), torch.ones(len(made), 1)
        )
        of_generator.zero_grad()
        self.manual_backward(fooled)
        of_generator.step()
        self.log_dict({"d_loss": loss, "g_loss": fooled})
        self.losses += [loss.detach(), fooled.detach()]
        self.batches += 1

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [
            torch.optim.Adam(part.parameters(), lr=2e-4, betas=(0.5, 0.999))
            for part in (self.generator, self.discriminator)
        ]


def main() -> None:
    trial = Trial(steps=120)
    points, _ = classes(30 * 128)
    loader = DataLoader(TensorDataset(points), batch_size=128, shuffle=True)
    module = Gan()
    callbacks = []
    if trial.with_callback:
        from stepscope.integrations.lightning import StepscopeCallback

        callbacks.append(StepscopeCallback(**trial.callback_arguments))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=2 * trial.steps,  # Lightning counts the steps of both optimizers
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        callbacks=callbacks,
    )
    with trial.loop():
        trainer.fit(module, loader)
    trial.write(module.batches, module, module.losses)


if __name__ == "__main__":
    main()
