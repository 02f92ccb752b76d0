"""Problems of the input: loaders, batches and the wait for them."""
