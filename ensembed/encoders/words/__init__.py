"""Encoders that pool word vectors: file formats, the converted store, pooling. May import the contract of encoders."""
