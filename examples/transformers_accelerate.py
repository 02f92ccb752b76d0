"""Records a loop of Accelerate with `StepscopeTracker`: gradient accumulation, hyper-parameters, the loss.

Needs accelerate: pip install 'stepscope[transformers]'
"""

import sys


def main() -> None:
    """Trains a small network; an optimizer step, after four batches, is a step."""
    try:
        import torch
        from accelerate import Accelerator
        from torch.utils.data import DataLoader, TensorDataset

        from stepscope.integrations.accelerate import StepscopeTracker
    except ImportError:
        sys.exit("This example needs accelerate. Install it with: pip install 'stepscope[transformers]'")

    torch.manual_seed(0)
    x = torch.randn(2048, 16)
    loader = DataLoader(TensorDataset(x, (x.sum(dim=1) > 0).long()), batch_size=32, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    tracker = StepscopeTracker(run="transformers-accelerate", project="examples")
    accelerator = Accelerator(log_with=tracker, gradient_accumulation_steps=4, cpu=True)
    accelerator.init_trackers("examples", config={"learning_rate": 1e-2, "batch_size": 32})
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    tracker.watch(model, optimizer)
    for _epoch in range(3):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                accelerator.log({"loss": loss.detach()})
    accelerator.end_training()
    print("next: stepscope show transformers-accelerate")


if __name__ == "__main__":
    main()
