# SPDX-License-Identifier: Apache-2.0
"""Controls a headless Chromium: opens, operates and inspects pages through the DevTools
protocol, over two pipes.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find():
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    return None


class Browser:
    """A browser for `with Browser(path) as browser`; pages have no network
    access."""

    def __init__(self, path):
        self.profile = tempfile.mkdtemp(prefix="longhaul-browser-")
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()

        def as_three_and_four():
            low, high = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self.process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--hide-scrollbars", "--force-device-scale-factor=1",
             "--user-data-dir=" + self.profile, "--remote-debugging-pipe",
             "about:blank"],
            close_fds=False, preexec_fn=as_three_and_four,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.rest = b""
        self.events = []
        self.last = 0
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"]
                      if t["type"] == "page")
        self.session = None
        self.session = self.ask("Target.attachToTarget", flatten=True,
                                targetId=target["targetId"])["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self, seconds):
        """Returns the next message, or None."""
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                return None
            more = os.read(self.into, 1 << 20)
            if not more:
                raise RuntimeError("Chromium is gone")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read(120)
            if answer is None:
                raise RuntimeError(f"Chromium does not answer {method}")
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def run(self, script):
        """Returns the value of an expression on the page; awaits promises."""
        result = self.ask("Runtime.evaluate", expression=script,
                          awaitPromise=True, returnByValue=True,
                          userGesture=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition, seconds=120):
        """Waits until an expression is true on the page; False: it never
        was."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run(condition):
                return True
            time.sleep(0.02)
        return False

    def until(self, done, seconds=60):
        """Waits until a Python function returns true."""
        end = time.monotonic() + seconds
        while not done() and time.monotonic() < end:
            self.run("1")
            time.sleep(0.01)

    def open(self, path, address="", size=(1400, 1200), dark=False):
        self.events.clear()
        self.ask("Emulation.setDeviceMetricsOverride", width=size[0],
                 height=size[1], deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme",
             "value": "dark" if dark else "light"}])
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=f"file://{path}#{address}")
        return self.wait("document.readyState === 'complete' && "
                         "location.protocol === 'file:'")

    def downloaded(self):
        """Returns the names of complete files, downloaded since the page was
        opened. An empty file with the name may exist before, and vanish in
        between."""
        names = {}
        done = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Page.downloadWillBegin":
                names[params["guid"]] = params["suggestedFilename"]
            if (event.get("method") == "Page.downloadProgress" and
                    params["state"] == "completed" and
                    params["guid"] in names):
                done.append(names[params["guid"]])
        return done

    def troubles(self):
        """Returns errors and warnings of the page, and its network requests,
        since it was opened."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method in ("Runtime.exceptionThrown", "Log.entryAdded") or (
                    method == "Runtime.consoleAPICalled" and
                    params["type"] in ("error", "warning", "assert")):
                found.append(json.dumps(params)[:300])
            if method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "blob:", "data:", "about:")):
                    found.append("network: " + url)
        return found

    def picture(self, path, whole=True):
        self.run("new Promise((r) => requestAnimationFrame(() => "
                 "requestAnimationFrame(() => r(1))))")
        shot = self.ask("Page.captureScreenshot", format="png",
                        captureBeyondViewport=whole)
        with open(path, "wb") as f:
            f.write(base64.b64decode(shot["data"]))
