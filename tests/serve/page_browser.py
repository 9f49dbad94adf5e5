"""Headless Chromium on the page of a server, with the DevTools driver of the look pages.

`problems` are errors and warnings of the console, and requests to other origins than that of the server.
"""

import importlib.util
from pathlib import Path

DRIVER = Path(__file__).parent.parent / "view" / "conftest.py"
spec = importlib.util.spec_from_file_location("view_browser", DRIVER)
driver = importlib.util.module_from_spec(spec)
spec.loader.exec_module(driver)
installed, KEYS = driver.installed, driver.KEYS
RUN, STOP, EXAMPLE, LOOK = (f"[data-action={name}]" for name in ("run", "stop", "example", "look"))
READY = "document.querySelector('#answer[aria-busy=false]')?.querySelector('.actions')"
KEYS.update({"Escape": 27})


class PageBrowser(driver.Browser):
    """One window on a server."""

    def __init__(self, folder):
        super().__init__(folder)
        self.origin, self.expected = "", ()

    def handle(self, event):
        """Requests to the server are no problem, nor are refusals that a test expects."""
        params = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent" and params["request"]["url"].startswith(self.origin):
            return
        if event.get("method") == "Log.entryAdded" and any(part in params["entry"]["text"] for part in self.expected):
            return
        super().handle(event)

    def goto(self, url, width=1200, scheme="light", expected=()):
        """Open a page; `expected` are parts of messages that are no problem."""
        self.origin, self.expected = "/".join(url.split("/")[:3]) + "/", expected
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self("Emulation.setDeviceMetricsOverride", width=width, height=driver.HEIGHT, deviceScaleFactor=1, mobile=False)
        self("Emulation.setEmulatedMedia", features=[still, {"name": "prefers-color-scheme", "value": scheme}])
        self("Page.navigate", url="about:blank")
        self.problems.clear()
        self.events.clear()
        self("Page.navigate", url=url)
        while not self.events:
            self.handle(self.message())

    def choose_model(self, name):
        self.wait("#model option")
        names = self.all("#model option", "e.value")
        self.choose("#model", names.index(name))
        self.wait(f"#composer {RUN}")

    def fill_in(self, field, text):
        self.focus(f"[data-field={field}]")
        self.run(f"document.querySelector('[data-field={field}]').select?.()")
        self("Input.insertText", text=text)
        self.settle()

    def fill_option(self, name, text):
        self.focus(f"[data-option={name}]")
        self("Input.insertText", text=text)

    def drop(self, file):
        """Choose a file, as the dialog of the drop zone does."""
        self.wait("[data-field=file]")
        found = self("Runtime.evaluate", expression="document.querySelector('[data-field=file]')")["result"]
        self("DOM.setFileInputFiles", files=[str(file)], objectId=found["objectId"])
        self.wait(".drop.filled")

    def ask(self):
        """Run the query and wait for the answer."""
        self.run("document.querySelector('#answer').replaceChildren()")
        self.click(RUN)
        self.wait_for(READY)

    def control_enter(self):
        params = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 2}
        self("Input.dispatchKeyEvent", type="rawKeyDown", **params)
        self("Input.dispatchKeyEvent", type="keyUp", **params)

    def overflow(self):
        """Pixels by which the page is wider than the window."""
        return self.run("document.documentElement.scrollWidth - innerWidth")
