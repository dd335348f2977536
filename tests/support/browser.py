"""A Chromium without a window, which does what a test says by the DevTools protocol over two pipes."""

import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from itertools import count

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 60.0
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


class Browser:
    """One tab. Its methods block: call them in a thread where the page is served by this process."""

    def __init__(self, to_browser, from_browser):
        self._to, self._from, self._numbers, self._session = to_browser, from_browser, count(1), None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method, **params):
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        self._to.write(json.dumps({"id": number, "method": method, "params": params, **session}).encode() + b"\0")
        self._to.flush()
        while (message := self._message()).get("id") != number:
            pass  # an event
        assert "error" not in message, message
        return message["result"]

    def _message(self):
        data = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "the browser has ended"
            data += byte
        return json.loads(data)

    def open(self, address):
        self.call("Page.navigate", url=address)

    def width(self, pixels, *, dark=False):
        """As a window of this width; a dark one if the user prefers that."""
        self.call("Emulation.setDeviceMetricsOverride", width=pixels, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression):
        """The value of an expression of JavaScript on the page; the value of a promise once there is one."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression):
        """The value of an expression as soon as it is true."""
        deadline = time.monotonic() + PATIENCE
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, expression
            time.sleep(0.1)
        return value


@contextmanager
def browser(folder):
    """A browser whose profile is in a folder. Skips the test where there is none."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium, as `scripts/system-packages browser` installs it")
    (read, write), (answers, answering) = os.pipe(), os.pipe()
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "--remote-debugging-pipe"]
    places = f"3<&{read} 4>&{answering}"  # where Chromium looks for its pipes
    with os.fdopen(write, "wb") as to_browser, os.fdopen(answers, "rb") as from_browser:
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" {places}', "bash", *command],
            pass_fds=(read, answering),
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(answering)
        try:
            yield Browser(to_browser, from_browser)
        finally:
            process.kill()
            process.wait()
