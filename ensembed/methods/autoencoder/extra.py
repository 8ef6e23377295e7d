"""The library that training needs."""

from __future__ import annotations

from ensembed.errors import MissingError


def import_torch() -> None:
    """Raise a MissingError with the line that installs torch, unless it is here."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingError(
            f"training an autoencoder needs torch, which cannot be imported ({error}); install it with: "
            "pip install 'ensembed[ae]'"
        ) from error
