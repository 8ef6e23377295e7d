"""One page that shows what `ensembed reproduce` found out."""
