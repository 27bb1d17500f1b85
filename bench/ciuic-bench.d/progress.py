"""One line that says how far a run is, on a terminal; a line a point elsewhere."""

import shutil
import sys
import time

BAR = 24


class Progress:
    def __init__(self, steps, stream=sys.stderr):
        self.steps, self.stream, self.done, self.began = steps, stream, 0, time.monotonic()
        self.terminal = stream.isatty()
        self.told = None

    def step(self, place, what):
        """`place`: benchmark and point; `what`: round and contender. Called before each step."""
        if self.terminal:
            full = BAR * self.done // max(self.steps, 1)
            text = f"[{'#' * full}{'.' * (BAR - full)}] {self.done}/{self.steps} {self._left()}{place}: {what}"
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r" + text[:width] + "\x1b[K")
        elif self.told != place:
            self.stream.write(f"==> {place} ({self.done}/{self.steps})\n")
        self.told = place
        self.stream.flush()
        self.done += 1

    def say(self, text):
        self.stream.write(("\r\x1b[K" if self.terminal else "") + text + "\n")
        self.stream.flush()

    def end(self):
        if self.terminal:
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def _left(self):
        if self.done < 2:
            return ""
        seconds = (time.monotonic() - self.began) / self.done * (self.steps - self.done)
        return f"{seconds / 60:.0f} min left " if seconds >= 90 else f"{seconds:.0f} s left "
