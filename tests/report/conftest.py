"""Pages to look at, and a real browser to look with; both are made once."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documented import documented_page, hostile_page

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of docs/report.md: three runs side by side."""
    return documented_page(tmp_path_factory.mktemp("documented"))


@pytest.fixture(scope="session")
def hostile_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_page(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium as the system has it; nothing is downloaded."""
    executable = next((found for name in NAMES if (found := shutil.which(name))), None)
    if executable is None:
        if os.environ.get("CI"):
            pytest.fail("the pages of reports are tested in Chromium, which is missing; apt-get install chromium")
        pytest.skip("needs Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # --no-sandbox: containers run as root; the page is our own
        opened = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()
