"""Copies runs into other programs: TensorBoard, MLflow, Weights & Biases."""
