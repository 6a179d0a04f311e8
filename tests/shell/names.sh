#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Names of every byte and length, paths near PATH_MAX and long symbolic links; also after a crash
# and from a checkpoint.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

command -v python3 >/dev/null || skip "no python3"
make_volume v
mount_volume
cat >"$tmp/names.py" <<'END'
import errno, os, sys
top, step = os.fsencode(sys.argv[1]), sys.argv[2]
names = [bytes([b]) for b in range(1, 256) if bytes([b]) not in (b"/", b".")]
names += [b"-rf", b"--", b"*", b"a\nb", b"a b", b" ", b"...", b".hidden", b"\xff\xfe\xfd",
          b"\xc3\xa9", b"e\xcc\x81"]
names += [b"x" * 254, b"x" * 255, b"\xff" * 255, b"\n" * 255]
names += [bytes(range(1, 47)), bytes(range(48, 256))]
names = list(dict.fromkeys(names))
deep = [bytes([97 + i % 26]) * 255 for i in range(15)] + [b"z" * 200]

def refused(want, call, *args):
    try:
        call(*args)
    except OSError as e:
        assert e.errno == want, (call, e)
    else:
        raise AssertionError("%s is not refused" % call)

def make():
    flat = os.path.join(top, b"flat")
    os.mkdir(flat)
    for i, n in enumerate(names):
        with open(os.path.join(flat, n), "wb") as f:
            f.write(b"%d:" % i + n)
    for call in (os.mkdir, os.mkfifo, lambda p: os.open(p, os.O_CREAT | os.O_WRONLY),
                 lambda p: os.symlink(b"x", p),
                 os.stat, os.unlink, lambda p: os.rename(os.path.join(flat, b"x" * 255), p),
                 lambda p: os.link(os.path.join(flat, b"x" * 255), p)):
        refused(errno.ENAMETOOLONG, call, os.path.join(flat, b"y" * 256))
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for n in deep:  # deeper than any one path reaches
        os.mkdir(n, dir_fd=at)
        new = os.open(n, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = new
    with open(os.open(b"bottom", os.O_CREAT | os.O_WRONLY, dir_fd=at), "wb") as f:
        f.write(b"deep")
    os.close(at)
    for size in (1, 59, 60, 61, 4094, 4095):
        os.symlink(b"t" * size, os.path.join(top, b"link%d" % size))
    refused(errno.ENAMETOOLONG, os.symlink, b"t" * 4096, os.path.join(top, b"link4096"))
    refused(errno.ENOENT, os.symlink, b"", os.path.join(top, b"link0"))

def check():
    flat = os.path.join(top, b"flat")
    assert sorted(os.listdir(flat)) == sorted(names), set(os.listdir(flat)) ^ set(names)
    for i, n in enumerate(names):
        assert open(os.path.join(flat, n), "rb").read() == b"%d:" % i + n, n
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for n in deep:
        assert [os.fsencode(e) for e in os.listdir(at)].count(n) == 1
        new = os.open(n, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = new
    assert open(os.open(b"bottom", os.O_RDONLY, dir_fd=at), "rb").read() == b"deep"
    os.close(at)
    for size in (1, 59, 60, 61, 4094, 4095):
        assert os.readlink(os.path.join(top, b"link%d" % size)) == b"t" * size
        assert os.lstat(os.path.join(top, b"link%d" % size)).st_size == size

def path_max():
    """The longest path the kernel takes from here, and one byte more."""
    path = top + b"/" + b"/".join(deep[:14])
    path += b"/" + b"p" * 100
    os.makedirs(path, exist_ok=True)
    room = 4095 - len(path) - 1
    name = path + b"/" + b"q" * min(room, 255)
    open(name, "wb").close()
    assert os.stat(name).st_size == 0
    refused(errno.ENAMETOOLONG, os.stat, top + b"/" + b"./" * 2100 + b"x")

def swap():
    flat = os.path.join(top, b"flat")
    for i, n in enumerate(names):  # each name is renamed away and back
        os.rename(os.path.join(flat, n), os.path.join(top, b"moving"))
        os.rename(os.path.join(top, b"moving"), os.path.join(flat, n))

for s in step.split(","):
    {"make": make, "check": check, "path": path_max, "swap": swap}[s]()
END
names() { python3 "$tmp/names.py" "$tmp/m" "$1" || fail "names: $1"; }

names make,check
kill_daemon m
mount_volume
names check,swap,check
expect 0 "$KVFS" checkpoint "$tmp/m"
kill_daemon m
mount_volume
names check,path
(cd "$tmp/m/flat" && rm -- -rf && [ ! -e ./-rf ] && touch -- -rf)
find "$tmp/m" | wc -l | grep -q . || fail "find"
rm -rf "$tmp/m"/* || fail "rm -rf"
[ -z "$(ls -A "$tmp/m")" ] || fail "left: $(ls -A "$tmp/m")"
expect 0 "$KVFS" umount "$tmp/m"
expect 0 "$FSCK" "$tmp/v"
