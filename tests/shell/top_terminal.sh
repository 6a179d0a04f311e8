#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvfs top on a terminal: each picture fits the screen, also after that became smaller or larger;
# Ctrl-C ends it; when the mount dies it says so in one line and fails.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s '' "shm:$tmp/s.sock" metrics=off
mount_volume "mirror=shm:$tmp/s.sock,metrics=off"
echo 1 >"$tmp/m/key"
cat >"$tmp/top.py" <<'END'
import fcntl, os, pty, re, signal, struct, subprocess, sys, termios, time

kvfs, where, patience = sys.argv[1], sys.argv[2], float(sys.argv[3])
daemon = int(sys.argv[4])

class Top:
    def __init__(self, rows, columns):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        # a terminal of its own, so that Ctrl-C reaches it as a signal
        self.process = subprocess.Popen([kvfs, "top", "--interval", "0.1", where], stdin=slave,
            stdout=slave, stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=self.in_child)
        os.close(slave)
        os.set_blocking(self.master, False)
        self.text = ""

    def in_child(self):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL) # who runs in the background ignores it

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        try:
            self.text += os.read(self.master, 65536).decode()
        except (BlockingIOError, OSError):
            time.sleep(0.02)

    # The pictures that are whole, as lists of lines.
    def pictures(self):
        return [re.sub(r"\033\[[KJ]", "", p).replace("\r", "").splitlines()
                for p in self.text.split("\033[H")[1:] if p.endswith("\033[J")]

    # The next picture that `is_so`.
    def wait(self, what, is_so):
        deadline = time.time() + 10 * patience
        self.text = ""
        while time.time() < deadline:
            self.read()
            for p in self.pictures():
                if is_so(p):
                    return p
        sys.exit("no picture %s: %r" % (what, self.text[-2000:]))

    def fits(self, rows, columns, also=lambda p: True):
        def is_so(p):
            return len(p) < rows and all(len(l) <= columns for l in p)
        # those before may be of the size before
        p = self.wait("of %d rows of %d" % (rows, columns), lambda p: is_so(p) and also(p))
        if not p[0].startswith("kvfs ") or not p[1].startswith("MIRROR shm:"):
            sys.exit("not from the top: %r" % p)
        for later in self.pictures()[self.pictures().index(p):]:
            if not is_so(later):
                sys.exit("%d rows of %d, but %r" % (rows, columns, later))
        return p

    def end(self, after):
        deadline = time.time() + 20 * patience
        while self.process.poll() is None and time.time() < deadline:
            self.read()
        if self.process.poll() is None:
            self.process.kill()
            sys.exit("kvfs top went on after %s: %r" % (after, self.text[-2000:]))
        os.close(self.master)
        return self.process.returncode, self.process.stderr.read().decode()

top = Top(24, 80)
top.fits(24, 80)
top.resize(9, 40)
if len(top.fits(9, 40)) != 8:
    sys.exit("a small screen is not used")
top.resize(100, 200)
top.fits(100, 200, lambda p: any(l.startswith("CLASS") for l in p))
os.write(top.master, b"\003")
code, said = top.end("Ctrl-C")
if code != -signal.SIGINT or said:
    sys.exit("Ctrl-C: %d, %r" % (code, said))

top = Top(24, 80)
top.fits(24, 80)
os.kill(daemon, signal.SIGKILL)
code, said = top.end("the end of the mount")
if code != 1 or len(said.splitlines()) != 1:
    sys.exit("the mount died: %d, %r" % (code, said))
END
"${PYTHON:-python3}" "$tmp/top.py" "$KVFS" "$tmp/v" "${KVFS_TEST_PATIENCE:-1}" \
	"$(pid_of m)" 2>"$tmp/err" || fail "$(cat "$tmp/err")"
