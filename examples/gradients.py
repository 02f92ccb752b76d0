"""Looks inside a torch training: gradients by layer, histograms, activations, and what is wrong with them.

Needs torch: pip install 'stepscope[torch]'
"""

import sys
from typing import Any

import stepscope
from stepscope.model_stats import Activations, GradientMonitor, Histograms


def main() -> None:
    """Trains two deep networks for a moment: one that learns, and one whose first layers hardly do."""
    try:
        import torch
    except ImportError:
        sys.exit("This example needs torch. Install it with: pip install 'stepscope[torch]'")

    torch.manual_seed(0)
    with stepscope.TrainingMonitor(run="gradients", project="examples") as monitor:
        for name, activation in (("relu", torch.nn.ReLU), ("sigmoid", torch.nn.Sigmoid)):
            model = deep_network(torch, activation)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            gradients = GradientMonitor(model, optimizer)
            for _step in range(40):
                x = torch.randn(64, 8)
                loss = (model(x).squeeze() - x.sum(dim=1)).square().mean()
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                figures = gradients.measure()
                optimizer.step()
                monitor.log({name: {"loss": loss.item(), **figures}})
            show(name, figures, gradients)
            show_inside(model, torch.randn(64, 8))
    print(f"{monitor.run_id} is in {monitor.directory}")


def deep_network(torch: Any, activation: Any) -> Any:
    """Twelve layers, one after another."""
    layers = [part for _ in range(12) for part in (torch.nn.Linear(8, 8), activation())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(8, 1))


def show(name: str, figures: dict[str, float], gradients: GradientMonitor) -> None:
    """Prints the norm of the first and the last layer, and what was found."""
    print(f"{name}: gradient of the first layer {figures['gradient_norm/0']:.1e}, ", end="")
    print(f"of the last {figures['gradient_norm/24']:.1e}")
    for finding in gradients.findings:
        print(f"  {finding.kind}: {finding.sentence}")


def show_inside(model: Any, x: Any) -> None:
    """Prints what comes out of the first activation, and how its weights are spread."""
    figures = Activations(model).measure(lambda: model(x))
    weights = Histograms(model).measure()["histogram/parameter/0"]
    print(f"  first activation: mean {figures['activation_mean/1']:.2f}, ", end="")
    print(f"zeros {figures['activation_zeros_ratio/1']:.0%}")
    print(f"  first weights: {weights.elements:.0f} between {weights.minimum:.2f} and {weights.maximum:.2f}")


if __name__ == "__main__":
    main()
