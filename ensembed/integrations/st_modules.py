"""The former place of `MetaEncoderModule`: folders that sentence-transformers saved name it by this path."""

from ensembed.integrations.sentence_transformers import MetaEncoderModule

__all__ = ["MetaEncoderModule"]
