"""Trains a classifier with a loop written by hand: epochs, evaluation, a schedule, checkpoints."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from trial import Trial, classes, classifier

BATCHES_PER_EPOCH = 30


def accuracy_of(model: torch.nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += int((model(x).argmax(1) == y).sum())
    model.train()
    return right / len(loader.dataset)


def main() -> None:
    trial = Trial(steps=120)
    x, y = classes(BATCHES_PER_EPOCH * 256 + 512)
    train = DataLoader(TensorDataset(x[512:], y[512:]), batch_size=256, shuffle=True)
    validation = DataLoader(TensorDataset(x[:512], y[:512]), batch_size=256)
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.99**step)
    checkpoint = trial.folder / "checkpoint.pt"
    step = 0
    if trial.resumes:
        state = torch.load(checkpoint)
        step = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    losses = []
    with trial.loop():
        while step < trial.steps:
            for inputs, labels in train:
                loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
                step += 1
            accuracy_of(model, validation)
            torch.save(
                {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint
            )
    trial.write(step, model, losses)


if __name__ == "__main__":
    main()
