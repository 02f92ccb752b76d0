"""Trains TabNet on a table, with the classifier of pytorch-tabnet."""

from pytorch_tabnet.tab_model import TabNetClassifier
from trial import Trial, classes


def main() -> None:
    trial = Trial(steps=120)
    x, y = classes(30 * 256 + 512)
    model = TabNetClassifier(n_d=32, n_a=32, seed=0, verbose=0, device_name="cpu")
    epochs = trial.steps // 30
    with trial.loop():
        model.fit(
            x[512:].numpy(),
            y[512:].numpy(),
            eval_set=[(x[:512].numpy(), y[:512].numpy())],
            max_epochs=epochs,
            batch_size=256,
            virtual_batch_size=128,
            num_workers=0,
            compute_importance=False,
        )
    batches = len(x[512:]) // 256
    trial.write(len(model.history["loss"]) * batches, model.network, model.history["loss"])


if __name__ == "__main__":
    main()
