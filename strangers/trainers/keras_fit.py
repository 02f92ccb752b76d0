"""Trains a classifier with Keras on its PyTorch backend."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
from trial import Trial, classes


def main() -> None:
    trial = Trial(steps=120)
    keras.utils.set_random_seed(0)
    x, y = classes(30 * 256 + 512)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(1024, activation="relu"),
            keras.layers.Dense(1024, activation="relu"),
            keras.layers.Dense(8),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    with trial.loop():
        history = model.fit(
            x[512:].numpy(),
            y[512:].numpy(),
            batch_size=256,
            epochs=trial.steps // 30,
            validation_data=(x[:512].numpy(), y[:512].numpy()),
            verbose=2,
        )
    trial.write(int(model.optimizer.iterations.numpy()), model, history.history["loss"])


if __name__ == "__main__":
    main()
