"""Real delays for a server of the page checks: a slow or full disk, and what `braid top` shows of it."""

import fcntl
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

ROWS, COLUMNS = 60, 160


def is_possible():
    return sys.platform == "linux" and shutil.which("cc") is not None


class SlowDisk:
    """The numbers that `slow_disk.c` reads, and the environment that puts it under a process."""

    NAMES = ["log_ms", "flush_ms", "merge_ms", "failure", "log_syncs", "file_syncs"]

    def __init__(self, folder):
        self.numbers = folder / "slow_disk.numbers"
        self.numbers.write_bytes(bytes(4 * len(self.NAMES)))
        library = folder / "slow_disk.so"
        source = pathlib.Path(__file__).with_name("slow_disk.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "SLOW_DISK": str(self.numbers)}

    def set(self, **numbers):
        """Sets these numbers, and all others but the counts to 0."""
        values = [numbers.get(name, 0) for name in self.NAMES[:4]]
        with open(self.numbers, "r+b") as file:
            file.write(struct.pack("=4i", *values))

    def count(self, name):
        return struct.unpack("=6i", self.numbers.read_bytes())[self.NAMES.index(name)]


class Terminal:
    """Runs a program in a terminal, and keeps what its screen shows."""

    def __init__(self, command, environment):
        self.cells = [[" "] * COLUMNS for _ in range(ROWS)]
        self.row = self.column = 0
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.execve(command[0], command, {**os.environ, **environment, "TERM": "xterm-256color"})
        self.pid = pid
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
        os.kill(pid, signal.SIGWINCH)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        held = b""
        while True:
            try:
                got = os.read(self.terminal, 65536)
            except OSError:
                return
            if not got:
                return
            held = self.take(held + got)

    def take(self, data):
        """Returns the bytes of a sequence or character that is not complete."""
        at = 0
        while at < len(data):
            sequence = re.compile(rb"\x1b(?:\[([0-9;?>=]*)([A-Za-z])|[()].|[78=>M])").match(data, at)
            if sequence:
                self.control(sequence[1] or b"", sequence[2])
                at = sequence.end()
            elif data[at] == 0x1B:
                if len(data) - at < 32:
                    return data[at:]
                at += 1
            elif data[at] < 0x20:
                self.column = 0 if data[at] == 13 else self.column
                self.row += data[at] == 10
                at += 1
            else:
                length = 1 if data[at] < 0x80 else 2 if data[at] < 0xE0 else 3 if data[at] < 0xF0 else 4
                if len(data) - at < length:
                    return data[at:]
                if self.row < ROWS and self.column < COLUMNS:
                    self.cells[self.row][self.column] = data[at:at + length].decode(errors="replace")
                self.column += 1
                at += length
        return b""

    def control(self, numbers, letter):
        if letter is None:
            return
        values = [int(number or 0) for number in numbers.split(b";")] if re.fullmatch(rb"[0-9;]*", numbers) else [0]
        if letter == b"H":
            self.row, self.column = max(1, values[0]) - 1, max(1, (values + [1])[1]) - 1
        elif letter == b"G":
            self.column = max(1, values[0]) - 1
        elif letter in (b"A", b"B"):
            self.row = max(0, self.row + (1 if letter == b"B" else -1) * max(1, values[0]))
        elif letter in (b"C", b"D"):
            self.column = max(0, self.column + (1 if letter == b"C" else -1) * max(1, values[0]))
        elif letter == b"J" and values[0] == 2:
            self.cells = [[" "] * COLUMNS for _ in range(ROWS)]
        elif letter == b"K" and self.row < ROWS:
            self.cells[self.row][self.column:] = [" "] * (COLUMNS - self.column)

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells)

    def await_text(self, pattern, seconds):
        ends = time.monotonic() + seconds
        while not re.search(pattern, self.text()):
            assert time.monotonic() < ends, f"the terminal does not show {pattern!r}:\n{self.text()}"
            time.sleep(0.05)

    def end(self):
        """Types `q`, and returns the exit code."""
        os.write(self.terminal, b"q")
        _, status = os.waitpid(self.pid, 0)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)
