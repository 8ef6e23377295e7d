"""Cross-view autoencoders. What needs torch is imported when one is trained, not before."""

from ensembed.methods.autoencoder.autoencoder_method import Autoencoder

__all__ = ["Autoencoder"]
