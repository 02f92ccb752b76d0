// The glossary of the help page.

export const GLOSSARY: { word: string; means: string }[] = [
  { word: "Step", means: "One optimizer update. With gradient accumulation, several batches make one step." },
  {
    word: "Phase",
    means:
      "A part of a step: data wait, transfer, forward, backward, optimizer, checkpoint, eval, other. " +
      "The phases add up to the step.",
  },
  {
    word: "Data wait",
    means:
      "Time the loop waits for the next batch. On a GPU only exposed wait counts: time in which the GPU is " +
      "idle too.",
  },
  {
    word: "GPU utilization",
    means: "Share of time in which at least one kernel runs. Small kernels in a row read as 100%.",
  },
  { word: "SM active", means: "Share of the GPU's compute units in use. Not every GPU reports it." },
  { word: "Worst", means: "The lowest of several GPUs or ranks, with its name." },
  { word: "Throttling", means: "Clocks reduced by heat, the power limit or the power supply." },
  { word: "Reserved and allocated", means: "GPU memory that PyTorch holds, and the part of it in use." },
  {
    word: "Lag",
    means:
      "How far the GPU is behind the host at the end of a phase. A drop to zero means that the phase waits " +
      "for the GPU, as .item() does.",
  },
  { word: "Rank", means: "One process of a distributed training. The slowest rank sets the pace." },
  { word: "Segment", means: "One start of a run. Time between segments is not part of its duration." },
  {
    word: "Stalled",
    means:
      "The process is alive, but recorded nothing for longer than agent.stall_after_s, three times its usual pause " +
      "and 1.5 times its longest pause, and shows no other activity.",
  },
  { word: "Crashed", means: "The process ended without reporting how." },
  { word: "Verdict", means: "The worst finding in one sentence, or that nothing was found." },
  { word: "Finding", means: "A problem with evidence, its estimated cost, and what to change." },
  { word: "Smoothing", means: "A moving average for display. Alerts use the logged values." },
  { word: "Band", means: "Minimum to maximum of the points behind each pixel. No spike is hidden." },
];
