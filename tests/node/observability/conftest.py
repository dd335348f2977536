"""One browser for all tests of the page."""

import pytest

from browser import browser


@pytest.fixture(scope="session")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab
