"""Encoders that are TensorFlow SavedModels. Only `tensorflow_start` imports TensorFlow (extra `tfhub`)."""
