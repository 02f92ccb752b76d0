"""Problems of the training itself: loss, gradients, learning rate, numbers."""
