"""`python -m ensembed` is `ensembed`."""

from ensembed.cli import main

main()
