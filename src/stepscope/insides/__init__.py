"""What goes on inside a model: gradients, weights, activations, attention."""
