"""Names that commands import from here until all import them from `console` and `options`."""

from ensembed.cli.console import human_bytes, open_corpus, print_json, print_table, progress_bars, read_batches
from ensembed.cli.options import (
    column_option,
    corpus_argument,
    encoder_option,
    errors_option,
    json_option,
    options,
    quiet_option,
    store_option,
    threads_option,
    trust_option,
    wait_option,
)

__all__ = [
    "column_option",
    "corpus_argument",
    "encoder_option",
    "errors_option",
    "human_bytes",
    "json_option",
    "open_corpus",
    "options",
    "print_json",
    "print_table",
    "progress_bars",
    "quiet_option",
    "read_batches",
    "store_option",
    "threads_option",
    "trust_option",
    "wait_option",
]
