"""Trains a classifier on two processes with DistributedDataParallel; started by torchrun."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from trial import Trial, classes, classifier


def main() -> None:
    trial = Trial(steps=120)
    dist.init_process_group("gloo")
    data = TensorDataset(*classes(40 * 256))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=128, sampler=sampler)
    model = DistributedDataParallel(classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    epoch = 0
    with trial.loop():
        while len(losses) < trial.steps:
            sampler.set_epoch(epoch)
            for inputs, labels in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            epoch += 1
    if dist.get_rank() == 0:
        trial.write(len(losses), model, losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
