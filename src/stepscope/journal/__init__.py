"""The crash-safe file between training and agent: layout, writer, reader."""
