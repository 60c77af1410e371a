"""Apps backed up with the log that they rest on: checkpoints as of their marks, stores, and their way back."""
