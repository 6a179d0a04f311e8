#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# FALLOC_FL_ZERO_RANGE through the mount: what is read, the size, the room that a later write finds,
# the modes that don't exist, and all of it again after kill -9.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need fallocate python3
one_mount 64M
python3 - "$mnt" "$tmp/want" <<'END'
import errno, os, subprocess, sys
mnt, want = sys.argv[1:]
os.mkdir(want)
blob = os.urandom(300000)
# name, offset, length, keep the size
cases = [("middle", 1000, 5000, False), ("chunks", 65536, 131072, False),
         ("odd", 60001, 150003, False), ("all", 0, 300000, False),
         ("across", 250000, 100000, False), ("behind", 400000, 1000, False),
         ("keeps", 250000, 100000, True), ("keeps-behind", 400000, 1000, True),
         ("one", 299999, 1, True), ("long", 100, 20 << 20, False)]
for name, off, length, keep in cases:
    with open(os.path.join(mnt, name), "wb") as f:
        f.write(blob)
    subprocess.check_call(["fallocate", "-z", "-o", str(off), "-l", str(length)] +
                          ["-n"] * keep + [os.path.join(mnt, name)])
    data = bytearray(blob)
    if off + length > len(data) and not keep:
        data += bytes(off + length - len(data))
    end = min(off + length, len(data))
    if off < end:
        data[off:end] = bytes(end - off)
    with open(os.path.join(want, name), "wb") as f:
        f.write(data)
    if not keep:
        st = os.stat(os.path.join(mnt, name))
        assert st.st_blocks * 512 >= st.st_size - (name == "behind") * 65536, (name, st)

# no other writer takes the room
zeroed = os.open(os.path.join(mnt, "zeroed"), os.O_RDWR | os.O_CREAT)
os.write(zeroed, os.urandom(8 << 20))
subprocess.check_call(["fallocate", "-z", "-o", "0", "-l", str(40 << 20),
                       os.path.join(mnt, "zeroed")])
filler = os.open(os.path.join(mnt, "filler"), os.O_WRONLY | os.O_CREAT)
try:
    while True:
        os.write(filler, os.urandom(1 << 20))
except OSError as e:
    assert e.errno == errno.ENOSPC, e
os.unlink(os.path.join(mnt, "filler")) # stays there while it is open
for at in range(0, 40 << 20, 1 << 20):
    os.pwrite(zeroed, b"1" * (1 << 20), at)
os.fsync(zeroed)
assert os.fstat(zeroed).st_blocks * 512 == 40 << 20
os.unlink(os.path.join(mnt, "zeroed"))
END
compare()
{
	for file in "$tmp"/want/*; do
		cmp "$file" "$mnt/${file##*/}" || fail "${file##*/} differs $1"
	done
}
compare "as written"
for mode in -c -i; do
	! fallocate $mode -o 4096 -l 4096 "$mnt/all" 2>/dev/null || fail "fallocate $mode worked"
done
crash_mount
compare "after kill -9"
"$KVFS" checkpoint "$mnt"
crash_mount
compare "from a checkpoint"
unmount mnt
expect 0 "$FSCK" "$tmp/v"
