"""Models: ensembles of encoders, what is fitted on them, saving and opening. May import `engines` and all below it."""
