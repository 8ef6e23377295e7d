"""Fitted meta-embeddings and whole models as ONNX graphs, and a reader of the folders that these are written to.

Writing needs the extra `onnx`; reading needs onnxruntime and tokenizers, which ensembed has anyway.
"""

from ensembed.integrations.onnx.export import export_meta, export_model
from ensembed.integrations.onnx.reader import OnnxModel

__all__ = ["OnnxModel", "export_meta", "export_model"]
