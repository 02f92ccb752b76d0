"""The loop writes a line of its log in each step, to a place that is slow."""

import logging
import time

import torch
from setting import DOSE, batches, classifier, samples, steps
from torch.nn.functional import cross_entropy

import stepscope


class Remote(logging.StreamHandler):
    def flush(self):
        time.sleep(0.004 * DOSE)
        super().flush()


log = logging.getLogger("training")
log.addHandler(Remote())
log.setLevel(logging.INFO)


model = classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(model, optimizer)
    for x, y in monitor.batches(batches(*samples(), steps(300))):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.info("loss %.4f", loss.item())
        monitor.log_training_step(loss=loss, optimizer=optimizer)
