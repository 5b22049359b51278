#!/usr/bin/env bash
# rpassword 7.5.4 at its prompt: what becomes of the terminal, and of keys that were typed earlier.
#
# A program that calls `rpassword::prompt_password` and ends by Ctrl-C, SIGTERM or SIGHUP leaves the terminal as the
# prompt has made it: without echo and line editing, so that what is typed afterwards isn't seen. Ctrl-Z, for which
# readpassphrase(3) gives the terminal back, does nothing. What was typed before the prompt was there becomes the beginning
# of the password; for a smart card that is a wrong PIN, and one of three tries.
#
# Seen with rpassword 7.5.4, compiled by Rust 1.95, on Linux 6.18; the lines stand at the end.
#
# Needs cargo, python3 and the network. Fails if it sees anything else.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "prompt"
version = "0.0.0"
edition = "2021"

[dependencies]
rpassword = "=7.5.4"
TOML
cat >src/main.rs <<'RUST'
fn main() {
    // Time to type before the prompt.
    println!("soon");
    std::thread::sleep(std::time::Duration::from_millis(500));
    println!("got {:?}", rpassword::prompt_password("PIN: ").unwrap());
}
RUST
cargo build --quiet

cat >observe.py <<'PYTHON'
import os, pty, select, signal, sys, termios, time

def until(terminal, text):
    seen = b""
    while text not in seen:
        if not select.select([terminal], [], [], 30)[0]:
            sys.exit(f"no {text!r} in {seen!r}")
        seen += os.read(terminal, 1024)
    return seen

class Prompt:
    """The program as the foreground job of a shell, which keeps the terminal after it."""

    def __init__(self):
        notices, self.for_shell = os.pipe()
        self.notices, from_shell = os.pipe()
        self.shell, self.terminal = pty.fork()
        if self.shell != 0:
            os.close(from_shell)
            self.job = int(os.read(self.notices, 100))
            return
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        job = os.fork()
        if job == 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(0, os.getpid())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            os.execv("target/debug/prompt", ["prompt"])
        os.write(from_shell, str(job).encode())
        _, status = os.waitpid(job, os.WUNTRACED)
        os.write(from_shell, str(status).encode())
        # Until the observer ends.
        os.close(self.for_shell)
        os.read(notices, 1)
        os._exit(0)

    def status(self, seconds):
        """How it ended or stopped; None if it still runs."""
        ended = select.select([self.notices], [], [], seconds)[0]
        return int(os.read(self.notices, 100)) if ended else None

    def local_flags(self):
        flags = termios.tcgetattr(self.terminal)[3]
        state = lambda flag: "on" if flags & flag else "off"
        return f"echo {state(termios.ECHO)}, line editing {state(termios.ICANON)}"

def at_prompt():
    prompt = Prompt()
    until(prompt.terminal, b"PIN: ")
    time.sleep(0.2)
    return prompt

def interrupted(name, interrupt):
    prompt = at_prompt()
    interrupt(prompt)
    status = prompt.status(10)
    ended = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    print(f"{name}: ended by {ended}, {prompt.local_flags()}")

interrupted("Ctrl-C", lambda prompt: os.write(prompt.terminal, b"\x03"))
interrupted("SIGTERM", lambda prompt: os.kill(prompt.job, signal.SIGTERM))
interrupted("SIGHUP", lambda prompt: os.kill(prompt.job, signal.SIGHUP))

prompt = at_prompt()
os.write(prompt.terminal, b"\x1a")
print("Ctrl-Z:", "not stopped" if prompt.status(2) is None else "stopped")
os.kill(prompt.job, signal.SIGKILL)

prompt = Prompt()
until(prompt.terminal, b"soon")
os.write(prompt.terminal, b"early")
until(prompt.terminal, b"PIN: ")
time.sleep(0.2)
os.write(prompt.terminal, b"late\n")
got = until(prompt.terminal, b'"\r\n').split(b"got ")[1].strip().decode()
print(f'typed ahead: "early" + "late" is {got}')
PYTHON
python3 observe.py | tee seen
diff - seen <<'SEEN'
Ctrl-C: ended by SIGINT, echo off, line editing off
SIGTERM: ended by SIGTERM, echo off, line editing off
SIGHUP: ended by SIGHUP, echo off, line editing off
Ctrl-Z: not stopped
typed ahead: "early" + "late" is "earlylate"
SEEN
echo "rpassword 7.5.4 still does this."
