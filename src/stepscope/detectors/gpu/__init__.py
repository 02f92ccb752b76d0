"""Problems of GPUs and of their memory."""
