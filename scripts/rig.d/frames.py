# SPDX-License-Identifier: Apache-2.0
"""Frames of the rig's control channel.

The same frames run between `scripts/rig` and the keeper (a Unix socket, channel always 0) and
between the keeper and a guest's agent (a virtio-serial port, one channel for each command).
Imported on both sides, so it imports little: a Python start is slow in an emulated guest.
"""
import struct

REQUEST = 1  # to the keeper: JSON, what to do; to the agent: JSON, a command to start
STDIN = 2    # bytes; none: end of input
STDOUT = 3
STDERR = 4
CREDIT = 5   # 4 bytes: so much input was taken by the command, so much more may be sent
EXIT = 6     # JSON: {"code": N, "error": TEXT or null}; the last frame of a command
REPLY = 7    # JSON: the answer to any other request
KILL = 8     # to the agent: kill the command's process group
HELLO = 9    # from the agent: the guest is up
RESIZE = 10  # JSON [rows, columns]: the terminal's size

HEAD = struct.Struct(">IBI")
WINDOW = 1 << 18     # input bytes on their way at most
CHUNK = 1 << 16
FRAME_MAX = 1 << 20

TIMED_OUT = 124      # exit codes of the rig itself, as timeout(1) has them
RIG_FAILED = 125


def pack(channel, kind, data=b""):
    return HEAD.pack(channel, kind, len(data)) + data


class Parser:
    """Cuts a byte stream into (channel, kind, data)."""

    def __init__(self):
        self.buffer = bytearray()

    def feed(self, data):
        self.buffer += data
        frames = []
        at = 0
        while len(self.buffer) - at >= HEAD.size:
            channel, kind, length = HEAD.unpack_from(self.buffer, at)
            if length > FRAME_MAX:
                raise ValueError("a frame of %d bytes" % length)
            if len(self.buffer) - at - HEAD.size < length:
                break
            at += HEAD.size
            frames.append((channel, kind, bytes(self.buffer[at:at + length])))
            at += length
        del self.buffer[:at]
        return frames
