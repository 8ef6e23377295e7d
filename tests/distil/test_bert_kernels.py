"""What only a CUDA device runs: a layer of BERT by our own kernels, against the layer that torch computes."""

from __future__ import annotations

import numpy as np
import pytest

from ensembed.distil.distil_job import bert_shapes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.mark.parametrize(("hidden", "heads", "inner"), [(64, 2, 128), (48, 3, 100), (384, 12, 1536)])
@pytest.mark.parametrize(("sentences", "length"), [(4, 8), (3, 40), (300, 104), (3, 130)])
def test_fused_layers_equal_those_of_torch(hidden: int, heads: int, inner: int, sentences: int, length: int) -> None:
    """Both in bfloat16, against the same in float64: our kernels may not be worse than torch's."""
    from ensembed.distil.bert_student import BertNetwork, fused

    torch.manual_seed(0)
    sizes = {"hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": inner, "num_hidden_layers": 2}
    config = {**sizes, "vocab_size": 100, "max_position_embeddings": 200, "type_vocab_size": 2, "layer_norm_eps": 1e-12}
    start = {name: torch.randn(shape, device="cuda") * 0.1 for name, shape in bert_shapes(config).items()}
    start = {name: tensor + ("LayerNorm.weight" in name) for name, tensor in fused(start).items()}
    halves = {name: tensor.bfloat16() if name.startswith("encoder.") else tensor for name, tensor in start.items()}
    ids = torch.randint(0, 100, (sentences, length), device="cuda")
    mask = torch.arange(length, device="cuda") < torch.randint(1, length + 1, (sentences, 1), device="cuda")
    direction = torch.randn(sentences, hidden, device="cuda", dtype=torch.float64)
    results = []
    for kind, fuse in ((torch.float64, False), (None, False), (None, True)):
        weights = {name: (t.to(kind) if kind else t.clone()).requires_grad_() for name, t in halves.items()}
        network = BertNetwork(config, weights)
        if fuse:
            network.fuse()
        pooled = network.pooled(ids, mask)
        gradients = torch.autograd.grad(pooled, list(weights.values()), direction.to(pooled.dtype))
        results.append([tensor.detach().double().cpu().numpy() for tensor in (pooled, *gradients)])
    for exact, plain, ours in zip(*results, strict=True):
        size = np.linalg.norm(exact) + 1e-9
        assert np.linalg.norm(ours - exact) / size < max(0.01, 1.5 * np.linalg.norm(plain - exact) / size)
