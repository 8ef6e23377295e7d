"""Cross-view autoencoders. What needs torch is imported when one is trained, not before."""

from ensembed.methods.autoencoder.method import Autoencoder

__all__ = ["Autoencoder"]
