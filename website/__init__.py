"""What the documentation site is made with: hooks of mkdocs, pictures, notebooks. It is no part of the package."""
