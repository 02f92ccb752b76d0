"""Lightning with automatic optimization, which accumulates the gradients of 4 batches (slow)."""

import tempfile
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.manual_seed(1)
STEPS = 2 * 8 // 4


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


model = Net()
loader = DataLoader(TensorDataset(torch.randn(32, 8), torch.randn(32, 1)), batch_size=4, shuffle=True)
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=2,
    accumulate_grad_batches=4,
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
    default_root_dir=tempfile.mkdtemp(),
)
trainer.fit(model, loader, DataLoader(TensorDataset(torch.randn(8, 8), torch.randn(8, 1)), batch_size=4))
losses = []
