"""Records a torch training loop: the wait for data, the phases of a step, the learning rate.

Needs torch: pip install 'stepscope[torch]'
"""

import sys

import stepscope


def main() -> None:
    """Trains a small network for two epochs."""
    try:
        import torch
        from torch.utils.data import DataLoader, TensorDataset
    except ImportError:
        sys.exit("This example needs torch. Install it with: pip install 'stepscope[torch]'")

    torch.manual_seed(0)
    x = torch.randn(2048, 16)
    y = (x.sum(dim=1) > 0).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=16, gamma=0.7)

    with stepscope.TrainingMonitor(run="torch-loop", project="examples") as monitor:
        for _epoch in range(2):
            for batch, target in monitor.batches(loader):
                with monitor.phase("forward"):
                    scores = model(batch)
                    loss = torch.nn.functional.cross_entropy(scores, target)
                with monitor.phase("backward"):
                    optimizer.zero_grad()
                    torch.autograd.backward(loss)
                with monitor.phase("optimizer"):
                    optimizer.step()
                    schedule.step()
                accuracy = (scores.argmax(dim=1) == target).float().mean()
                monitor.log_training_step(optimizer=optimizer, loss=loss, accuracy=accuracy)
    print(f"{monitor.run_id} is in {monitor.directory}")


if __name__ == "__main__":
    main()
