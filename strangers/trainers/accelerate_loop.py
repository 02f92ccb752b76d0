"""Trains a classifier with Accelerate: four batches accumulated, a schedule, clipping, evaluation."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from trial import Trial, classes, classifier


def main() -> None:
    trial = Trial(steps=60)
    x, y = classes(40 * 128 + 512)
    tracker = None
    if trial.with_callback:
        from stepscope.integrations.accelerate import StepscopeTracker

        tracker = StepscopeTracker(**trial.callback_arguments)
    accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True, log_with=tracker)
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, train, validation, schedule = accelerator.prepare(
        model,
        optimizer,
        DataLoader(TensorDataset(x[512:], y[512:]), batch_size=128, shuffle=True),
        DataLoader(TensorDataset(x[:512], y[:512]), batch_size=128),
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.99**step),
    )
    accelerator.init_trackers("trial", config={"lr": 1e-3})
    if tracker is not None:
        tracker.watch(model, optimizer)
    losses, step = [], 0
    with trial.loop():
        while step < trial.steps:
            for inputs, labels in train:
                with accelerator.accumulate(model):
                    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                        step += 1
                        accelerator.log({"train_loss": loss.item()}, step=step)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                losses.append(loss.item())
            model.eval()
            with torch.no_grad():
                for inputs, labels in validation:
                    accelerator.gather_for_metrics((model(inputs).argmax(1), labels))
            model.train()
        accelerator.end_training()
    trial.write(step, accelerator.unwrap_model(model), losses)


if __name__ == "__main__":
    main()
