"""Classifies small graphs with PyTorch Geometric: batches are objects, not tensors."""

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool
from trial import Trial

NODES = 24


def graphs(count: int) -> list[Data]:
    generator = np.random.default_rng(0)
    made = []
    for _ in range(count):
        label = int(generator.integers(0, 4))
        features = generator.normal(label, 2.0, (NODES, 32)).astype(np.float32)
        edges = generator.integers(0, NODES, (2, 80))
        made.append(
            Data(x=torch.from_numpy(features), edge_index=torch.from_numpy(edges), y=torch.tensor([label]))
        )
    return made


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(32, 256), GCNConv(256, 256)
        self.last = torch.nn.Linear(256, 4)

    def forward(self, data: Data) -> torch.Tensor:
        x = self.first(data.x, data.edge_index).relu()
        x = self.second(x, data.edge_index).relu()
        return self.last(global_mean_pool(x, data.batch))


def main() -> None:
    trial = Trial(steps=120)
    loader = DataLoader(graphs(40 * 32), batch_size=32, shuffle=True)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    with trial.loop():
        while len(losses) < trial.steps:
            for batch in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    trial.write(len(losses), model, losses)


if __name__ == "__main__":
    main()
