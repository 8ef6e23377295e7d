"""SavedModels of TensorFlow Hub."""
