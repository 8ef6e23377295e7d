"""Names that `data` and `pull` import from here until they import them from `console` and `options`."""

from ensembed.cli.console import human_bytes, print_json, print_table, progress_bars
from ensembed.cli.options import json_option, quiet_option

__all__ = ["human_bytes", "json_option", "print_json", "print_table", "progress_bars", "quiet_option"]
