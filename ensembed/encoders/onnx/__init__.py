"""Transformers in ONNX form."""
