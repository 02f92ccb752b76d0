"""A script made for W&B with one changed line: the import. Everything else is as it was.

python examples/from_wandb.py
stepscope show from-wandb
"""

import math
import random

import stepscope as wandb


def main() -> None:
    """Trains on invented numbers."""
    run = wandb.init(
        project="examples",
        name="from-wandb",
        config={"learning_rate": 0.1, "epochs": 3, "architecture": "CNN"},
        tags=["baseline"],
    )
    config = run.config  # wandb.config is the same
    random.seed(0)
    best = 0.0
    for epoch in range(config.epochs):
        for batch in range(20):
            loss = math.exp(-(epoch * 20 + batch) * config.learning_rate / 2) + 0.02 * random.random()
            wandb.log({"train/loss": loss}, commit=False)
            wandb.log({"train/lr": config.learning_rate, "epoch": epoch})
        accuracy = 1 - loss
        best = max(best, accuracy)
        run.summary["best_accuracy"] = best
        wandb.log({"val": {"accuracy": accuracy}})
        if accuracy < 0.5:
            wandb.alert(
                title="Low accuracy", text=f"Accuracy is {accuracy:.2f}.", level=wandb.AlertLevel.WARN
            )
    wandb.finish()
    print(f"best accuracy {best:.2f}; look at it with: stepscope show {run.name}")


if __name__ == "__main__":
    main()
