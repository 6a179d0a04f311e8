# SPDX-License-Identifier: Apache-2.0
"""The agent in a guest: runs commands for the keeper over a virtio-serial port.

One thread, one poll loop; every command has its own process group and deadline. Output is read
until the command has ended, not until its pipes are closed: a daemon that it leaves behind may keep
them.
"""
import fcntl
import json
import os
import select
import signal
import sys
import termios
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import frames  # noqa: E402

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/sh", "LC_ALL": "C.UTF-8",
}


class Command:
    def __init__(self, channel, request):
        self.channel = channel
        self.deadline = time.monotonic() + request["timeout"]
        self.timed_out = False
        self.pending = []        # input not yet taken; None ends it
        self.outputs = {}        # fd -> frame kind
        if request.get("pty"):
            self.stdin, slave = os.openpty()
            fds = [slave, slave, slave]
            self.outputs[self.stdin] = frames.STDOUT
            ours = []
        else:
            pipes = [os.pipe() for _ in range(3)]
            fds = [pipes[0][0], pipes[1][1], pipes[2][1]]
            self.stdin = pipes[0][1]
            self.outputs = {pipes[1][0]: frames.STDOUT, pipes[2][0]: frames.STDERR}
            ours = fds
        self.pty = bool(request.get("pty"))
        self.pid = os.fork()
        if self.pid == 0:
            self.become(request, fds)
        for fd in ours or {fds[0]}:
            os.close(fd)
        for fd in (self.stdin, *self.outputs):
            os.set_blocking(fd, False)

    def become(self, request, fds):
        try:
            os.setsid()
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
            if self.pty:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.closerange(3, 256)
            for number in (signal.SIGPIPE, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            environment = dict(ENVIRONMENT, **request["env"])
            try:
                os.chdir(request["cwd"])
            except OSError:
                os.chdir("/")
            os.execvpe(request["argv"][0], request["argv"], environment)
        except OSError as error:
            os.write(2, ("rig: %s: %s\n" % (request["argv"][0], error.strerror)).encode())
        finally:
            os._exit(127)

    def kill(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Agent:
    def __init__(self, port):
        self.port = port
        self.parser = frames.Parser()
        self.commands = {}
        self.wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def send(self, channel, kind, data=b""):
        data = memoryview(frames.pack(channel, kind, data))
        while data:
            data = data[os.write(self.port, data):]

    def handle(self, channel, kind, data):
        command = self.commands.get(channel)
        if kind == frames.REQUEST:
            self.commands[channel] = Command(channel, json.loads(data))
        elif not command:
            return
        elif kind == frames.STDIN:
            command.pending.append(data or None)
        elif kind == frames.KILL:
            command.kill()
        elif kind == frames.RESIZE and command.pty:
            termios.tcsetwinsize(command.stdin, json.loads(data))

    def feed_input(self, command):
        """Gives the command what it takes; says how much that was."""
        data = command.pending[0]
        if data is None:
            if command.pty:
                try:
                    os.write(command.stdin, b"\x04")
                except BlockingIOError:
                    return
                except OSError:  # nobody reads it any more
                    pass
            else:
                os.close(command.stdin)
                command.stdin = -1
            command.pending.clear()
            return
        try:
            taken = os.write(command.stdin, data)
        except BlockingIOError:
            return
        except OSError:  # it closed its input: swallow the rest
            taken = len(data)
        command.pending[0] = data[taken:]
        if not command.pending[0]:
            del command.pending[0]
        self.send(command.channel, frames.CREDIT, taken.to_bytes(4, "big"))

    def drain(self, command, fd):
        """False when there is nothing more now."""
        try:
            data = os.read(fd, frames.CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # EIO: nobody holds the terminal any more
            data = b""
        if not data:
            if fd != command.stdin:
                os.close(fd)
            del command.outputs[fd]
            return False
        self.send(command.channel, command.outputs[fd], data)
        return True

    def finish(self, command, status):
        for fd in list(command.outputs):
            while self.drain(command, fd):
                pass
        for fd in {command.stdin, *command.outputs} - {-1}:
            os.close(fd)
        del self.commands[command.channel]
        code = os.waitstatus_to_exitcode(status)
        answer = {"code": code if code >= 0 else 128 - code, "error": None}
        if command.timed_out:
            answer = {"code": frames.TIMED_OUT, "error": "the command ran past its deadline"}
        self.send(command.channel, frames.EXIT, json.dumps(answer).encode())

    def reap(self):
        for command in list(self.commands.values()):
            pid, status = os.waitpid(command.pid, os.WNOHANG)
            if pid:
                self.finish(command, status)

    def wait(self):
        """Polls everything once; calls whose turn it is."""
        poll = select.poll()
        poll.register(self.port, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        owners = {}
        for command in self.commands.values():
            events = dict.fromkeys(command.outputs, select.POLLIN)
            if command.pending and command.stdin >= 0:
                events[command.stdin] = events.get(command.stdin, 0) | select.POLLOUT
            for fd, mask in events.items():
                poll.register(fd, mask)
                owners[fd] = command
        now = time.monotonic()
        nearest = min([c.deadline for c in self.commands.values() if not c.timed_out], default=None)
        ready = poll.poll(None if nearest is None else max(0, nearest - now) * 1000 + 1)
        for fd, mask in ready:
            if fd == self.port:
                data = os.read(self.port, frames.CHUNK)
                for frame in self.parser.feed(data):
                    self.handle(*frame)
            elif fd == self.wake:
                os.read(self.wake, 4096)
            else:
                command = owners[fd]
                if (mask & (select.POLLOUT | select.POLLERR) and command.pending
                        and fd == command.stdin):
                    self.feed_input(command)
                if mask & (select.POLLIN | select.POLLHUP) and fd in command.outputs:
                    self.drain(command, fd)

    def run(self):
        self.send(0, frames.HELLO)
        while True:
            self.wait()
            self.reap()
            for command in self.commands.values():
                if time.monotonic() >= command.deadline and not command.timed_out:
                    command.timed_out = True
                    command.kill()


def main(port, ready):
    agent = Agent(os.open(port, os.O_RDWR))
    while not os.path.exists(ready):  # the rest of the guest is still being set up
        time.sleep(0.05)
    agent.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
