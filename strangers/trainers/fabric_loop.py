"""Trains a classifier with Lightning Fabric: a loop written by hand, devices and precision by Fabric."""

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset
from trial import Trial, classes, classifier


def main() -> None:
    trial = Trial(steps=120)
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(
        DataLoader(TensorDataset(*classes(40 * 256)), batch_size=256, shuffle=True)
    )
    losses = []
    with trial.loop():
        while len(losses) < trial.steps:
            for inputs, labels in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                fabric.backward(loss)
                fabric.clip_gradients(model, optimizer, max_norm=1.0)
                optimizer.step()
                losses.append(loss.item())
    trial.write(len(losses), model, losses)


if __name__ == "__main__":
    main()
