// Code that records a first run, for three training frameworks.

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

class Record(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        monitor.log_training_step(
            loss=outputs["loss"], step=trainer.global_step, epoch=trainer.current_epoch
        )

with stepscope.TrainingMonitor(run="mnist") as monitor:
    monitor.watch(model)
    lightning.Trainer(callbacks=[Record()]).fit(model, loader)`,
  },
  {
    name: "Hugging Face",
    code: `import stepscope, transformers

class Recorded(transformers.Trainer):
    def get_train_dataloader(self):
        return monitor.batches(super().get_train_dataloader())

    def log(self, logs, *rest):
        super().log(logs, *rest)
        monitor.log(logs)

with stepscope.TrainingMonitor(run="mnist") as monitor:
    monitor.watch(model)
    Recorded(model, args, train_dataset=dataset).train()`,
  },
];
