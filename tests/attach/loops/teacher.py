"""A student that learns from a teacher, with a moving average of its weights."""

import torch

torch.manual_seed(1)
STEPS = 10


class Student(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.layer(x)


teacher = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).eval()
student = Student()
models = [student]
average = torch.optim.swa_utils.AveragedModel(student)
optimizer = torch.optim.SGD(student.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
losses = []
for _ in range(STEPS):
    x = torch.randn(4, 8)
    with torch.no_grad():
        target = teacher(x)
    loss = torch.nn.functional.mse_loss(student(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    average.update_parameters(student)
    losses.append(loss.item())
