"""Problems between ranks: the exchange of gradients, and how it is set up."""
