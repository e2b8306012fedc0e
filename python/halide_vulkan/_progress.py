"""Says on standard error what is being done, once it has taken a second. Standard output belongs to results."""

import sys
import threading
import time
from types import TracebackType
from typing import Optional, Type

PATIENCE = 1.0  # seconds before a step is spoken of
INTERVAL = 10.0  # and between later words, where no terminal shows a running clock


class Step:
    """``with Step("running a kernel"): ...``"""

    def __init__(self, what: str) -> None:
        self.what = what
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._speak, daemon=True)

    def _speak(self) -> None:
        terminal = sys.stderr.isatty()
        begin = time.monotonic()
        wait = PATIENCE
        while not self._done.wait(wait):
            seconds = int(time.monotonic() - begin)
            line = f"{self.what} ... {seconds} s"
            sys.stderr.write(f"\r{line}" if terminal else f"{line}\n")
            sys.stderr.flush()
            wait = 1.0 if terminal else INTERVAL
        if terminal and wait != PATIENCE:
            sys.stderr.write("\r\x1b[K")

    def __enter__(self) -> "Step":
        self._thread.start()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._done.set()
        self._thread.join()
