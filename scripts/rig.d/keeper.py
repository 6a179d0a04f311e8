# SPDX-License-Identifier: Apache-2.0
"""The keeper: the process that holds a rig together, one for each rig.

It starts QEMU, passes commands between `scripts/rig` (socket DIR/keeper) and the guests' agents,
and keeps every deadline. It ends, and takes everything with it, on request, when the process that
owns the rig ends however that comes about, or when the rig's lifetime is over. Its children die
with it by PR_SET_PDEATHSIG, so that even a killed keeper leaves none. One thread (asyncio).
"""
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import frames  # noqa: E402
import kernel  # noqa: E402
import machine  # noqa: E402
from util import RigError, die_with, size  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
KEEPER = os.getpid()
GRACE = 15            # seconds that a guest gets to end a command whose deadline has passed
CLIENT_BUFFER = 64 << 20


class Guest:
    def __init__(self, rig, number):
        self.rig, self.number = rig, number
        self.process = self.agent = self.server = None
        self.up = asyncio.Event()
        self.boot_seconds = None
        self.boots = 0
        self.channels = {}
        self.next_channel = 1
        self.dir = "g%d" % number

    async def prepare(self):
        os.makedirs(self.dir)
        for at, dimm in enumerate(self.rig.options["nvdimm"]):
            with open("%s/nvdimm%d" % (self.dir, at), "wb") as file:
                file.truncate(size(dimm))
        self.server = await asyncio.start_unix_server(self.serve_agent, self.dir + "/agent")

    async def start(self, seconds):
        if self.process:
            raise RigError("guest %d runs already" % self.number)
        started = time.monotonic()
        self.up.clear()
        argv = machine.guest(self.number, self.rig.options, self.rig.kernel, HERE + "/guest-init")
        with open(self.dir + "/qemu.log", "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log,
                preexec_fn=lambda: die_with(KEEPER))
        self.process.stdin.write(b'{"execute": "qmp_capabilities"}\n')
        self.boots += 1
        ended = asyncio.create_task(self.watch(self.process))
        up = asyncio.create_task(self.up.wait())
        await asyncio.wait({ended, up}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if not self.up.is_set():
            why = "QEMU ended" if ended.done() else "it was not up after %d s" % seconds
            await self.kill()
            raise RigError("guest %d: %s; the end of its logs:\n%s" %
                           (self.number, why, self.log_tail()))
        self.boot_seconds = round(time.monotonic() - started, 1)

    def log_tail(self):
        lines = []
        for name in ("qemu.log", "console.log"):
            with open("%s/%s" % (self.dir, name), "a+", errors="replace", encoding="utf-8") as file:
                file.seek(0)
                lines += file.read().splitlines()[-15:]
        return "\n".join(lines)

    async def watch(self, process):
        await process.wait()
        if self.process is process:
            self.process = self.agent = None
            self.up.clear()
        for client in list(self.channels.values()):
            client.finish(frames.RIG_FAILED, "guest %d ended" % self.number)

    async def kill(self):
        process = self.process
        if process:
            process.kill()
            await process.wait()
            await asyncio.sleep(0)  # lets watch() see it first
            self.process = self.agent = None

    async def serve_agent(self, reader, writer):
        self.agent = writer
        parser = frames.Parser()
        try:
            while data := await reader.read(1 << 18):
                for channel, kind, payload in parser.feed(data):
                    if kind == frames.HELLO:
                        self.up.set()
                    elif channel in self.channels:
                        self.channels[channel].from_guest(kind, payload)
        except (ConnectionError, ValueError) as error:
            print("guest %d: agent: %s" % (self.number, error), flush=True)
        finally:
            writer.close()

    def status(self):
        return {"guest": self.number,
                "state": "up" if self.up.is_set() else "booting" if self.process else "off",
                "pid": self.process.pid if self.process else None, "boots": self.boots,
                "boot_seconds": self.boot_seconds, "address": "10.77.0.%d" % self.number,
                "console": os.path.abspath(self.dir + "/console.log")}

    def link(self, nic, on):
        if not self.process:
            raise RigError("guest %d does not run" % self.number)
        self.process.stdin.write(json.dumps({"execute": "set_link", "arguments": {
            "name": "nic%d" % nic, "up": on}}).encode() + b"\n")


class Client:
    """One connection of scripts/rig that runs a command."""

    def __init__(self, guest, writer, request):
        self.guest, self.writer = guest, writer
        self.ended = asyncio.Event()
        self.channel = guest.next_channel
        guest.next_channel += 1
        guest.channels[self.channel] = self
        self.to_guest(frames.REQUEST, json.dumps(request).encode())

    def to_guest(self, kind, data=b""):
        if self.guest.agent:
            self.guest.agent.write(frames.pack(self.channel, kind, data))

    def from_guest(self, kind, data):
        self.writer.write(frames.pack(0, kind, data))
        if self.writer.transport.get_write_buffer_size() > CLIENT_BUFFER:
            self.to_guest(frames.KILL)
        if kind == frames.EXIT:
            self.ended.set()

    def finish(self, code, error):
        self.from_guest(frames.EXIT, json.dumps({"code": code, "error": error}).encode())

    async def read(self, reader):
        """Passes the client's frames on; returns when it is gone."""
        parser = frames.Parser()
        while data := await reader.read(1 << 18):
            for _, kind, payload in parser.feed(data):
                if kind in (frames.STDIN, frames.KILL, frames.RESIZE):
                    self.to_guest(kind, payload)
            if self.guest.agent:
                await self.guest.agent.drain()

    async def run(self, reader, seconds):
        gone = asyncio.create_task(self.read(reader))
        ended = asyncio.create_task(self.ended.wait())
        done, _ = await asyncio.wait({gone, ended}, timeout=seconds + GRACE,
                                     return_when=asyncio.FIRST_COMPLETED)
        if not self.ended.is_set():
            self.to_guest(frames.KILL)
            if not done:
                self.finish(frames.TIMED_OUT, "guest %d did not answer in time" % self.guest.number)
        for task in (gone, ended):
            task.cancel()
        await asyncio.gather(gone, ended, return_exceptions=True)
        del self.guest.channels[self.channel]


class Rig:
    def __init__(self, options):
        self.options = options
        self.kernel = kernel.prepare(options["cache"])
        self.guests = {n: Guest(self, n) for n in range(1, options["guests"] + 1)}
        self.stop = asyncio.Event()
        self.keep = False

    def guest(self, request):
        if request.get("guest") not in self.guests:
            raise RigError("there is no guest %s; there are %d" %
                           (request.get("guest"), len(self.guests)))
        return self.guests[request["guest"]]

    async def answer(self, request):
        what = request["what"]
        if what == "start":
            guest = self.guest(request)
            await guest.start(request["seconds"])
            return {"boot_seconds": guest.boot_seconds}
        if what == "kill":
            await self.guest(request).kill()
        elif what == "link":
            self.guest(request).link(request["nic"], request["on"])
        elif what == "down":
            self.keep = request["keep"]
            self.stop.set()
        elif what == "status":
            return {"dir": os.getcwd(), "keeper": os.getpid(), "owner": self.options["owner"],
                    "guests": [guest.status() for guest in self.guests.values()]}
        else:
            raise RigError("no such request: %s" % what)
        return {}

    async def serve(self, reader, writer):
        try:
            channel, kind, length = frames.HEAD.unpack(await reader.readexactly(frames.HEAD.size))
            if channel or kind != frames.REQUEST or length > frames.FRAME_MAX:
                return
            request = json.loads(await reader.readexactly(length))
            try:
                if request["what"] == "run":
                    guest = self.guest(request)
                    if not guest.up.is_set():
                        raise RigError("guest %d is not up" % guest.number)
                    await Client(guest, writer, request).run(reader, request["timeout"])
                else:
                    reply = await self.answer(request)
                    writer.write(frames.pack(0, frames.REPLY, json.dumps(reply).encode()))
            except RigError as error:
                reply = {"error": str(error)}
                writer.write(frames.pack(0, frames.REPLY, json.dumps(reply).encode()))
            await asyncio.wait_for(writer.drain(), 30)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError):
            pass
        finally:
            writer.close()

    def watch_owner(self, loop):
        """The rig ends with the process that owns it."""
        if self.options["owner"]:
            try:
                loop.add_reader(os.pidfd_open(self.options["owner"]), self.stop.set)
            except ProcessLookupError:
                self.stop.set()
        loop.call_later(self.options["lifetime"], self.stop.set)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)

    async def run(self, ready):
        self.watch_owner(asyncio.get_running_loop())
        os.makedirs("hub")
        for guest in self.guests.values():
            await guest.prepare()
        with open("hub/qemu.log", "ab") as log:
            hub = await asyncio.create_subprocess_exec(
                *machine.network(len(self.guests), self.options["nics"]), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, preexec_fn=lambda: die_with(KEEPER))
        with open("keeper.pid", "w", encoding="ascii") as file:
            file.write(str(KEEPER))
        server = await asyncio.start_unix_server(self.serve, "keeper")
        os.write(ready, b"ready\n")
        os.close(ready)
        await self.stop.wait()
        server.close()
        for guest in self.guests.values():
            await guest.kill()
        hub.kill()
        await hub.wait()
        os.unlink("keeper")
        if not self.keep:
            shutil.rmtree(os.getcwd())


def main():
    """In the rig's directory; options as JSON in argv[1], readiness or an error to fd argv[2]."""
    ready = int(sys.argv[2])
    try:
        rig = Rig(json.loads(sys.argv[1]))
    except (RigError, OSError) as error:
        os.write(ready, ("%s\n" % error).encode())
        sys.exit(1)
    asyncio.run(rig.run(ready))


if __name__ == "__main__":
    main()
