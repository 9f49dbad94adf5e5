"""Headless Chromium, driven by the DevTools protocol over pipes.

    chromium --remote-debugging-pipe 3<commands 4>responses        JSON objects, a zero byte after each

Chromium itself is the only requirement.
"""

import base64
import json
import os
import select
import shutil
import subprocess
from collections import deque

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
LOCAL = ("file:", "data:", "blob:", "about:")
HEIGHT = 900  # of the window
TIMEOUT = 60  # seconds for one response
FIND = "document.querySelector({})"
WAIT = """new Promise((resolve, reject) => {{
    const began = Date.now();
    (function search() {{
        if ({}) resolve();
        else if (Date.now() - began > 20000) reject(new Error("timeout"));
        else setTimeout(search, 10);
    }})();
}})"""
MIDDLE = """(() => {{
    const target = {};
    target.scrollIntoView({{ block: "center", inline: "center", behavior: "instant" }});
    const box = target.getBoundingClientRect();
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    const top = document.elementFromPoint(x, y);
    return target.contains(top) ? {{ x, y }} : `covered by ${{top?.outerHTML.slice(0, 200)}}`;
}})()"""


def installed():
    return next((name for name in map(shutil.which, NAMES) if name), None)


class Browser:
    """One window. `problems` are errors and warnings of the page, and its network requests."""

    def __init__(self, folder):
        self.folder, self.opened, self.problems = folder, 0, []
        self.count, self.buffer, self.events = 0, b"", deque()
        command = [installed(), *OPTIONS, f"--user-data-dir={folder / 'profile'}"]
        redirect = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
        self.process = subprocess.Popen(
            ["sh", "-c", redirect, *command], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.session = None
        window = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=window, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self(f"{part}.enable")

    def __call__(self, method, **params):
        """The response to a command of the protocol."""
        self.count += 1
        params = {"id": self.count, "method": method, "params": params}
        params |= {"sessionId": self.session} if self.session else {}
        self.process.stdin.write(json.dumps(params).encode() + b"\0")
        while (answer := self.message()).get("id") != self.count:
            self.handle(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def message(self):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT)
            more = os.read(self.process.stdout.fileno(), 1 << 20) if ready else b""
            assert more, "the browser has exited" if ready else "the browser does not respond"
            self.buffer += more
        first, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(first)

    def handle(self, event):
        params, method = event.get("params", {}), event.get("method")
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(str(params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(LOCAL):
            self.problems.append(f"requests {params['request']['url']}")
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"opens a dialog: {params['message']}")
        elif method == "Page.loadEventFired":
            self.events.append(method)

    def open(self, html, width=1200, scheme="light", touch=False):
        self.opened += 1
        file = self.folder / f"{self.opened}.html"
        file.write_text(html, encoding="utf-8")
        self.visit(file, width, scheme, touch)

    def visit(self, file, width=1200, scheme="light", touch=False):
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self("Emulation.setDeviceMetricsOverride", **size)
        self("Emulation.setEmulatedMedia", features=[still, {"name": "prefers-color-scheme", "value": scheme}])
        self("Emulation.setTouchEmulationEnabled", enabled=touch)
        self("Page.navigate", url="about:blank")
        self("Input.dispatchMouseEvent", type="mouseMoved", x=0, y=0)
        self.problems.clear()
        self.events.clear()
        self("Page.navigate", url=file.resolve().as_uri())
        while not self.events:
            self.handle(self.message())

    def run(self, code):
        """The value of an expression; promises are awaited."""
        answer = self("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{code}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait(self, selector):
        self.wait_for(FIND.format(json.dumps(selector)))

    def wait_for(self, code):
        self.run(WAIT.format(code))

    def all(self, selector, what):
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => {what})")

    def text(self, selector):
        return self.run(f"{FIND.format(json.dumps(selector))}.textContent")

    def values(self, selector):
        return [float(value) for value in self.all(selector, "e.dataset.value")]

    def place(self, selector):
        self.wait(selector)
        box = self.run(MIDDLE.format(FIND.format(json.dumps(selector))))
        assert isinstance(box, dict), f"{selector} is {box}"
        return box

    def hover(self, selector):
        self("Input.dispatchMouseEvent", type="mouseMoved", **self.place(selector))

    def click(self, selector):
        place = self.place(selector)
        self("Input.dispatchMouseEvent", type="mouseMoved", **place)
        for kind in ("mousePressed", "mouseReleased"):
            self("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)
        self.settle()

    def tap(self, selector):
        self("Input.dispatchTouchEvent", type="touchStart", touchPoints=[self.place(selector)])
        self("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.settle()

    def focus(self, selector):
        self.wait(selector)
        self.run(f"{FIND.format(json.dumps(selector))}.focus()")

    def press(self, key):
        params = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        self("Input.dispatchKeyEvent", type="keyDown", **params, **({"text": "\r"} if key == "Enter" else {}))
        self("Input.dispatchKeyEvent", type="keyUp", **params)
        self.settle()

    def choose(self, selector, at):
        """Select an option of a drop-down list."""
        list_ = FIND.format(json.dumps(selector))
        self.run(f"{list_}.selectedIndex = {at}, {list_}.dispatchEvent(new Event('change', {{ bubbles: true }}))")
        self.settle()

    def settle(self):
        """Wait until pending work is done and drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done))).then(() => null)")

    def turn_to(self, kind):
        self.click(f'[role=tab][data-kind="{kind}"]')
        self.wait(f'section[data-kind="{kind}"][data-ready]')
        self.settle()

    def shot(self, file):
        """A screenshot of the full page."""
        width, height = self.run("[innerWidth, document.documentElement.scrollHeight]")
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.settle()
        file.write_bytes(base64.b64decode(self("Page.captureScreenshot")["data"]))
        self("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=False)

    def close(self):
        self.session = None
        self("Browser.close")
        self.process.communicate(timeout=TIMEOUT)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    if not installed():
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the PATH")
    browser = Browser(tmp_path_factory.mktemp("pages"))
    yield browser
    browser.close()
