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
    code: `import lightning
from stepscope.integrations.lightning import StepscopeCallback

trainer = lightning.Trainer(callbacks=[StepscopeCallback(run="mnist")])
trainer.fit(model, loader)`,
  },
  {
    name: "Hugging Face",
    code: `from stepscope.integrations.transformers import StepscopeCallback
from transformers import Trainer

trainer = Trainer(model, args, train_dataset=dataset)
trainer.add_callback(StepscopeCallback(run="mnist"))
trainer.train()`,
  },
];
