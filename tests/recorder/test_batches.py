"""A wrapped loader is still the loader it was: to trainers, to copies, to whoever sets its attributes."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

import stepscope

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("without_agent")
data = torch.utils.data

SAMPLES = data.TensorDataset(torch.arange(12.0).reshape(12, 1))


def loader(kind=data.DataLoader, **options):
    options.setdefault("generator", torch.Generator().manual_seed(3))
    return kind(SAMPLES, batch_size=4, shuffle=True, **options)


def values(batches) -> list[list[float]]:
    return [batch[0].flatten().tolist() for batch in batches]


def test_a_wrapped_data_loader_is_one_and_gives_the_same_batches(folder: Path) -> None:
    with stepscope.TrainingMonitor(run="one", directory=folder) as monitor:
        wrapped = monitor.batches(loader())
        assert isinstance(wrapped, data.DataLoader)
        assert len(wrapped) == 3
        assert [values(wrapped), values(wrapped)] == [values(plain := loader()), values(plain)]
    run = stepscope.open_store(folder).run("one")
    assert len(run.series("step_seconds")) == 6


def test_what_is_set_on_a_loader_or_on_the_wrapped_one_holds_for_both(folder: Path) -> None:
    class WithEpoch(data.DataLoader):
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    with stepscope.TrainingMonitor(directory=folder) as monitor:
        own = loader(WithEpoch)
        wrapped = monitor.batches(own)
        own.set_epoch(3)
        assert wrapped.epoch == 3
        wrapped.set_epoch(4)
        assert own.epoch == 4
        with pytest.raises(ValueError, match="batch_size"):
            wrapped.batch_size = 5  # as a loader says itself


def test_a_copy_of_a_wrapped_loader_is_a_plain_loader(folder: Path) -> None:
    with stepscope.TrainingMonitor(directory=folder) as monitor:
        wrapped = monitor.batches(data.DataLoader(SAMPLES, batch_size=4))
        for other in (copy.copy(wrapped), copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
            assert type(other) is data.DataLoader
            assert values(other) == values(wrapped)


def test_a_loader_that_keeps_attributes_in_slots_is_wrapped_all_the_same(folder: Path) -> None:
    class Slotted(data.DataLoader):
        __slots__ = ("_passes_made",)

        def __iter__(self):
            self._passes_made = 1
            return super().__iter__()

    with stepscope.TrainingMonitor(directory=folder) as monitor:
        assert len(values(monitor.batches(loader(Slotted)))) == 3


def test_workers_of_a_wrapped_loader_load_as_before(folder: Path) -> None:
    with stepscope.TrainingMonitor(directory=folder) as monitor:
        workers = {"num_workers": 1, "persistent_workers": True}
        wrapped, plain = monitor.batches(loader(**workers)), loader(**workers)
        assert [values(wrapped), values(wrapped)] == [values(plain), values(plain)]


def test_accelerate_prepares_a_wrapped_loader_as_it_does_a_plain_one(folder: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    accelerator = accelerate.Accelerator(cpu=True)
    with stepscope.TrainingMonitor(run="prepared", directory=folder) as monitor:
        prepared = accelerator.prepare(monitor.batches(loader()))
        assert type(prepared).__name__ == type(accelerator.prepare(loader())).__name__
        assert values(prepared) == values(accelerator.prepare(loader()))
        wrapped = monitor.batches(accelerator.prepare(loader()))
        ends = [accelerator.gradient_state.end_of_dataloader for _ in wrapped]
    assert ends == [False, False, True]


def losses_in_lightning(wrap) -> list[float]:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    losses = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch, _):
            loss = self.layer(batch[0]).square().mean()
            losses.append(float(loss))
            return loss

        def validation_step(self, batch, _):
            self.layer(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    lightning.seed_everything(1, verbose=False)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", enable_model_summary=False, **options)
    trainer.fit(
        Module(),
        wrap(data.DataLoader(SAMPLES, 4, shuffle=True)),
        wrap(data.DataLoader(SAMPLES, batch_size=4)),
    )
    return losses


@pytest.mark.filterwarnings("ignore")
def test_losses_in_lightning_are_those_without_stepscope(folder: Path) -> None:
    with stepscope.TrainingMonitor(run="lightning", directory=folder) as monitor:
        assert losses_in_lightning(monitor.batches) == losses_in_lightning(lambda loader: loader)
