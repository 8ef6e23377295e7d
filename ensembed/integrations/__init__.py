"""Integrations with other libraries, one file and extra for each; of ensembed, only the command line imports them."""
