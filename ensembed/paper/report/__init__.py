"""The report of `ensembed reproduce`: one page with tables and figures."""
