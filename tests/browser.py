"""A real browser for tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str:
    """The path of Chromium. Without one tests are skipped, but never where CI is set: there they fail."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    why = f"none of {', '.join(NAMES)} is on the PATH: install one of them, or run `make browser` as root"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium, closed afterwards."""
    path = find_chromium()
    from playwright.sync_api import sync_playwright

    # Chromium refuses to run as root with its sandbox.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments, timeout=120_000)
        try:
            yield browser
        finally:
            browser.close()
