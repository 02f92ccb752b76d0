"""Profiles a small model four ways: a training window, inference, smaller numbers, its data loader.

Needs torch: pip install 'stepscope[torch]'
"""

import sys
from typing import Any

from stepscope.profiling import (
    Limits,
    ModelProfiler,
    ProfilerWindow,
    Repeats,
    loader_throughput,
    quantisation_impact,
)


def train(torch: Any, model: Any, loader: Any) -> None:
    """Trains two epochs and profiles ten steps of the second."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    with ProfilerWindow(epochs=(1,), active=10, warmup=2) as window:
        for epoch in range(2):
            for batch, target in loader:
                loss = torch.nn.functional.cross_entropy(model(batch), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                window.step(epoch, step)
                step += 1
    (profile,) = window.profiles
    shares = ", ".join(f"{name} {share:.0%}" for name, share in profile.breakdown.shares().items())
    print(f"window: {profile.steps} steps in {profile.window_seconds * 1000:.0f} ms: {shares}")
    for operation in profile.operations[:3]:
        print(f"  {operation.name}: {operation.share_ratio:.0%} of operator time, {operation.calls} calls")
    print(f"  {profile.bottleneck}")


def infer(model: Any) -> None:
    """Prints latency and throughput at three batch sizes."""
    profile = ModelProfiler(model, input_shape=(64,), repeats=Repeats(50, 5)).profile(
        batch_sizes=(1, 16, 256)
    )
    print(f"model: {profile.footprint.parameters} parameters, {profile.flops.per_sample} operations a sample")
    for batch in profile.batches:
        p95_ms = batch.latency.p95_seconds * 1000
        print(f"  batch {batch.batch_size}: p95 {p95_ms:.3f} ms, {batch.samples_per_second:.0f} samples/s")


def shrink(torch: Any, model: Any) -> None:
    """Prints what smaller numbers would bring and cost."""
    for variant in quantisation_impact(model, torch.randn(128, 64)).variants:
        if variant.reason is not None or variant.difference is None:
            print(f"  {variant.name}: {variant.reason}")
            continue
        print(
            f"  {variant.name}: {variant.size_ratio:.0%} of the size, "
            f"{variant.speedup_ratio:.2f} times as fast, "
            f"same class for {variant.difference.top1_agreement_ratio:.0%} of inputs"
        )


def main() -> None:
    """Makes a model and data, and looks at them from four sides."""
    try:
        import torch
        from torch.utils.data import DataLoader, TensorDataset
    except ImportError:
        sys.exit("This example needs torch. Install it with: pip install 'stepscope[torch]'")

    torch.manual_seed(0)
    x = torch.randn(4096, 64)
    loader = DataLoader(TensorDataset(x, (x.sum(dim=1) > 0).long()), batch_size=64)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 2))

    train(torch, model, loader)
    infer(model)
    print("smaller numbers:")
    shrink(torch, model)
    throughput = loader_throughput(loader, Limits(batches=50, seconds=2))
    p95_ms = throughput.batch_load.p95_seconds * 1000
    print(f"loader: {throughput.samples_per_second:.0f} samples/s, p95 {p95_ms:.2f} ms a batch")


if __name__ == "__main__":
    main()
