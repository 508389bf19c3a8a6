"""Chromium without a window and with one page, spoken to by its debugging protocol over a pipe."""

import base64
import json
import queue
import subprocess
import tempfile
import threading
import time
from pathlib import Path

# How long a page may take to show something: a safety net, far above what it takes.
PATIENCE = 60


class Browser:
    def __init__(self, url: str) -> None:
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # It reads what it is told from descriptor 3 and answers on 4.
        words = ["sh", "-c", 'exec "$0" "$@" 3<&0 4>&1 1>&2 </dev/null', "chromium"]
        words += ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
        words += ["--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "--hide-scrollbars"]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.messages: queue.Queue = queue.Queue()
        # What the browser holds against the page: errors of its script, and of its policy.
        self.complaints: list[str] = []
        self.count, self.session = 0, None
        threading.Thread(target=self._listen, daemon=True).start()
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Log", "Runtime", "Page"):
            self.tell(f"{domain}.enable")
        self.tell("Page.navigate", url=url)

    def _listen(self) -> None:
        rest = b""
        while chunk := self.process.stdout.read1(1 << 16):
            *whole, rest = (rest + chunk).split(b"\0")
            for message in map(json.loads, whole):
                self._note(message)
                self.messages.put(message)

    def _note(self, message: dict) -> None:
        entry = message.get("params", {}).get("entry", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(message["params"]["exceptionDetails"]))
        # Answers that are refused, and connections, are said to be errors, too; the page expects them.
        elif entry.get("level") == "error" and entry.get("source") != "network":
            self.complaints.append(str(entry))

    def tell(self, method: str, **parameters) -> dict:
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while True:
            answer = self.messages.get(timeout=PATIENCE)
            if answer.get("id") == self.count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def value(self, expression: str):
        """The value of an expression in the page."""
        result = self.tell("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def wait(self, expression: str, expected=True) -> None:
        """Waits until an expression has a value; while a page is loading it may have none."""
        begun, value = time.monotonic(), None
        while time.monotonic() - begun < PATIENCE:
            try:
                value = self.value(expression)
            except AssertionError as error:
                value = error
            if value == expected:
                return
            time.sleep(0.05)
        raise AssertionError(f"{expression} is {value!r} and not {expected!r}")

    def picture(self, file: Path, width: int, scheme: str) -> None:
        """A picture of the whole page, which must not be wider than it may."""
        self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        phone = width < 600
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=2 if phone else 1, mobile=phone,
        )
        wide = self.value("document.documentElement.scrollWidth")
        assert wide <= width, f"the page is {wide} wide where there are {width}"
        size = self.tell("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": width, "height": size["height"], "scale": 1}
        shot = self.tell("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.profile.cleanup()
