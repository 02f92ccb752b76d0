// The code that makes a first run, for three ways to train.

export const SNIPPETS: { name: string; code: string }[] = [
  {
    name: "Plain loop",
    code: `import stepscope

with stepscope.TrainingMonitor(run="mnist") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(loader):
        loss = train_step(x, y)
        monitor.log_training_step(loss=loss)`,
  },
  {
    name: "Lightning",
    code: `import lightning, stepscope

class Watch(lightning.Callback):
    def on_fit_start(self, trainer, module):
        self.monitor = stepscope.TrainingMonitor(run="mnist")
        self.monitor.watch(module)

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.monitor.log_training_step(loss=outputs["loss"])

    def on_fit_end(self, trainer, module):
        self.monitor.stop_monitoring()

lightning.Trainer(callbacks=[Watch()]).fit(model, loader)`,
  },
  {
    name: "Hugging Face",
    code: `import stepscope, transformers

class Watch(transformers.TrainerCallback):
    def on_train_begin(self, args, state, control, model=None, **rest):
        self.monitor = stepscope.TrainingMonitor(run="mnist")
        self.monitor.watch(model)

    def on_log(self, args, state, control, logs=None, **rest):
        self.monitor.log(logs, step=state.global_step)

    def on_train_end(self, args, state, control, **rest):
        self.monitor.stop_monitoring()

transformers.Trainer(..., callbacks=[Watch()]).train()`,
  },
];
