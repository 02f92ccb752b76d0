"""Lightning with manual optimization and two optimizers (slow)."""

import tempfile
import warnings

import pytorch_lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.manual_seed(1)
STEPS = 8


class Gan(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.discriminator = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        generator, discriminator = self.optimizers()
        loss = self.discriminator(batch[0]).square().mean()
        discriminator.zero_grad()
        self.manual_backward(loss)
        discriminator.step()
        loss = self.discriminator(self.generator(torch.randn(4, 4))).square().mean()
        generator.zero_grad()
        self.manual_backward(loss)
        generator.step()

    def configure_optimizers(self):
        return [
            torch.optim.Adam(self.generator.parameters()),
            torch.optim.Adam(self.discriminator.parameters()),
        ]


model = Gan()
trainer = pytorch_lightning.Trainer(
    accelerator="cpu",
    max_epochs=1,
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
    default_root_dir=tempfile.mkdtemp(),
)
trainer.fit(model, DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=4))
losses = []
