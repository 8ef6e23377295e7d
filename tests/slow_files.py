"""Test files that take long, or that need torch, TensorFlow, Ray, a browser, PostgreSQL or another large library.

`make quick` leaves them out. The other runs begin with the slowest of them. The numbers are roughly the seconds of
processor time of a file; 5 also stands for a file that is not slow but imports a large library.
"""

from __future__ import annotations

SLOW_FILES = {
    # Ray
    "test_ray_embedding.py": 120,
    "test_ray_training.py": 110,
    "test_ray_fitting.py": 90,
    "test_engines.py": 70,
    "test_scaling_docs.py": 30,
    "test_ray_embed_command.py": 20,
    "test_resources.py": 5,
    "test_worker_parts.py": 5,
    # Real encoders, sentence-transformers, TensorFlow
    "test_st_real.py": 80,
    "test_real.py": 60,
    "test_every_kind.py": 55,
    "test_st.py": 45,
    "test_st_files.py": 5,
    "test_st_loading.py": 5,
    "test_tensorflow.py": 10,
    "test_tfhub.py": 10,
    "test_tfhub_files.py": 5,
    "test_tfhub_graphs.py": 10,
    "test_paper_ensemble.py": 5,
    # Autoencoders
    "test_autoencoder.py": 15,
    "test_autoencoder_batches.py": 5,
    "test_autoencoder_cuda.py": 5,
    "test_autoencoder_gradients.py": 5,
    "test_autoencoder_linear.py": 5,
    "test_autoencoder_training.py": 25,
    "test_kept_training.py": 10,
    "test_device.py": 5,
    # Other libraries
    "test_docs_integrations.py": 100,
    "test_bertopic_adaptor.py": 15,
    "test_chroma_adaptor.py": 10,
    "test_haystack_adaptor.py": 10,
    "test_langchain_adaptor.py": 10,
    "test_llama_index_adaptor.py": 10,
    "test_mteb.py": 10,
    "test_onnx_export.py": 10,
    "test_pgvector_server.py": 10,
    "test_sentence_transformers.py": 15,
    "test_sklearn_transformers.py": 10,
    "test_st_stock.py": 10,
    "test_vector_stores.py": 15,
    # Browsers, servers and other processes
    "test_page.py": 30,
    "test_page_errors.py": 20,
    "test_report_browser.py": 20,
    "test_serve_abuse.py": 20,
    "test_serve_clients.py": 15,
    "test_serve_command.py": 10,
    "test_serve_openapi.py": 10,
    "test_serve_shutdown.py": 10,
    "test_index_crashes.py": 40,
    "test_benchmarks.py": 10,
    "test_reproduce_command.py": 20,
}
