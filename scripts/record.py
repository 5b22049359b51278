#!/usr/bin/env python3
"""Type commands in a shell at a terminal, and draw what is seen there as an animated SVG: for scripts/record.

    scripts/record.py PIN COMMAND… <commands >SVG

The PIN is typed at each prompt for one. COMMAND, with a request's name behind it, approves that.
"""

import fcntl
import html
import itertools
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

COLUMNS, ROWS, CHARACTER, LINE, MARGIN = 100, 24, 7.8, 18, 16
COLOURS = {"1": "b", "31": "r", "32": "g", "33": "y"}
PROMPT, PIN, REQUEST = r"\$ $", r"PIN[^\n]*: $", r"signer approve (\S+)"


class Terminal:
    """A shell, and what it has shown when. No pause is longer than four seconds."""

    def __init__(self):
        child, self.file = pty.fork()
        if child == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            os.environ["PS1"] = "$ "
            os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
        self.shown, self.unread, self.clock, self.last = [], "", 0, time.monotonic()

    def look(self, seconds):
        if select.select([self.file], [], [], seconds)[0]:
            text = os.read(self.file, 65536).decode()
            now = time.monotonic()
            self.clock, self.last = self.clock + min(now - self.last, 4), now
            self.shown.append((self.clock, text))
            self.unread += text

    def until(self, *patterns):
        while True:
            for pattern in patterns:
                found = re.search(pattern, self.unread)
                if found:
                    self.unread = self.unread[found.end() :]
                    return found
            before = len(self.shown)
            self.look(60)
            if len(self.shown) == before:
                sys.exit("record: nothing comes behind " + repr(self.unread))

    def type(self, text, pause):
        self.watch(pause)
        for character in text + "\n":
            os.write(self.file, character.encode())
            self.watch(0.04)

    def watch(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look(max(end - time.monotonic(), 0))


def record(pin, approve, commands):
    terminal = Terminal()
    for command in commands:
        terminal.until(PROMPT)
        terminal.type(command, 2)
        while (found := terminal.until(PIN, REQUEST, PROMPT)).re.pattern != PROMPT:
            if found.re.pattern == PIN:
                terminal.type(pin, 1.5)
            else:
                terminal.watch(4)
                subprocess.run([*approve, found[1]], stdout=subprocess.DEVNULL, check=True)
        terminal.unread = "$ "
    return terminal.shown


def screens(shown):
    """The lines of the screen after each piece of output: characters, each with its colour. A full screen scrolls."""
    rows, row, column, colour, top = [[]], 0, 0, "", 0
    for moment, text in shown:
        for control, character in re.findall(r"\x1b\[([0-9;?]*[A-Za-z])|(.)", text, re.DOTALL):
            count = int(control[:-1] or 0) if control and control[:-1].isdigit() else 0
            if control.endswith("m"):
                colour = COLOURS.get(control[:-1], "")
            elif control.endswith("A"):
                row -= max(count, 1)
            elif control.endswith(("J", "K")):
                rows[row] = [] if count == 2 else rows[row][:column]
                if control.endswith("J"):
                    del rows[row + 1 :]
            elif control:
                sys.exit("record: an unknown control sequence, " + repr(control))
            elif character == "\r":
                column = 0
            elif character == "\n":
                row += 1
            else:
                if column == COLUMNS:
                    row, column = row + 1, 0
                rows.extend([] for _ in range(row + 1 - len(rows)))
                rows[row].extend([(" ", "")] * (column + 1 - len(rows[row])))
                rows[row][column] = (character, colour)
                column += 1
            rows.extend([] for _ in range(row + 1 - len(rows)))
        top = max(top, len(rows) - ROWS)
        yield moment, [list(line) for line in rows[top:]]


def pieces(shown):
    """What stands on the screen: row, column, text, colour, since when, and until when (None: to the end)."""
    gone, standing = [], []
    for moment, rows in screens(shown):
        kept, covered = [], set()
        for piece in standing:
            row, column, text, colour, since, _ = piece
            place = range(column, column + len(text))
            if row < len(rows) and rows[row][place.start : place.stop] == [(it, colour) for it in text]:
                kept.append(piece)
                covered.update((row, it) for it in place)
            else:
                gone.append([*piece[:5], moment])
        for row, line in enumerate(rows):
            runs = itertools.groupby(enumerate(line), lambda it: ((row, it[0]) in covered, it[1][1]))
            for (is_covered, colour), run in runs:
                run = list(run)
                text = "".join(character for _, (character, _) in run)
                if not is_covered and text.strip():
                    column = run[0][0] + len(text) - len(text.lstrip())
                    kept.append([row, column, text.strip(), colour, moment, None])
        standing = kept
    return gone + standing


def draw(shown):
    """Where nothing is animated, the end is seen."""
    whole = shown[-1][0] + 5
    all_pieces = sorted(pieces(shown), key=lambda it: it[4])
    width = 2 * MARGIN + COLUMNS * CHARACTER
    height = 2 * MARGIN + LINE * (1 + max(it[0] for it in all_pieces))
    names, rules, texts = {}, [], []
    for row, column, text, colour, since, until in all_pieces:
        name = names.setdefault((since, until), f"t{len(names)}")
        place = f'x="{MARGIN + column * CHARACTER:.6g}" y="{MARGIN + LINE * row + 13}" textLength="{len(text) * CHARACTER:.6g}"'
        texts.append(f'<text class="{name} {colour}" {place}>{html.escape(text, quote=False)}</text>')
    for (since, until), name in names.items():
        end = f"{until / whole:.2%}{{opacity:0}}" if until else ""
        rules.append(f"@keyframes {name}{{0%{{opacity:0}}{since / whole:.2%}{{opacity:1}}{end}}}")
        rules.append(f".{name}{{animation-name:{name}" + (";opacity:0}" if until else "}"))
    print(f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height}" viewBox="0 0 {width:g} {height}" role="img" xml:space="preserve">
<title>The first minute in a terminal</title>
<style>
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e6edf3;white-space:pre;animation:{whole:.1f}s step-end infinite}}
.b{{font-weight:bold}}.r{{fill:#ff7b72}}.g{{fill:#3fb950}}.y{{fill:#d29922}}""")
    print(*rules, "</style>", f'<rect width="{width:g}" height="{height}" rx="8" fill="#0d1117"/>', *texts, "</svg>", sep="\n")


if __name__ == "__main__":
    draw(record(sys.argv[1], sys.argv[2:], sys.stdin.read().splitlines()))
