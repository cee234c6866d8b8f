"""A real browser without a screen, for pages."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

_QUIET = (
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-gpu",
    "--disable-sync", "--no-first-run",
)  # fmt: skip
"""Without these it paints twice and calls its makers in vain: a third of the processor time of its tests."""


def start_browser(*arguments: str, **capabilities: Any) -> Any:
    """A driver of Chromium; skips where there is none."""
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.service import Service

    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    program = shutil.which("chromedriver")
    if browser is None or program is None:
        pytest.skip("no Chromium with chromedriver on this machine; `make browser` installs it where apt is")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", *_QUIET, *arguments):
        options.add_argument(argument)
    for name, value in capabilities.items():
        options.set_capability(f"goog:{name}", value)
    try:
        return webdriver.Chrome(options=options, service=Service(program))
    except WebDriverException as problem:
        pytest.skip(f"Chromium does not start on this machine: {problem.msg}")
