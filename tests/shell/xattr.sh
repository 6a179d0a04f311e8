#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Extended attributes through the mount: set, replace, list, remove, their errors, on each kind of
# object that has them, after a rename and a link, after kill -9 and after a checkpoint. (model.sh
# compares with tmpfs where that has user attributes.)
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
chmod 755 "$tmp"
one_mount 32M xattr,allow_other
python3 - "$mnt" <<'END' || fail "attributes"
import ctypes, errno, os, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)

def fails(number, call, *args):
    try:
        call(*args)
    except OSError as e:
        assert e.errno == number, (call, args, e)
    else:
        raise AssertionError((call, args, "no error"))

open("a", "w").close()
os.mkdir("d")
os.symlink("a", "l")
for name in "a", "d":
    assert os.listxattr(name) == []
    fails(errno.ENODATA, os.getxattr, name, "user.k")
    fails(errno.ENODATA, os.removexattr, name, "user.k")
    fails(errno.ENODATA, os.setxattr, name, "user.k", b"x", os.XATTR_REPLACE)
    os.setxattr(name, "user.k", b"one", os.XATTR_CREATE)
    fails(errno.EEXIST, os.setxattr, name, "user.k", b"x", os.XATTR_CREATE)
    assert os.getxattr(name, "user.k") == b"one"
    os.setxattr(name, "user.k", b"another, longer one", os.XATTR_REPLACE)
    os.setxattr(name, "user.empty", b"")
    os.setxattr(name, "user.bytes", bytes(range(256)) * 8)
    os.setxattr(name, "user." + "n" * 250, b"the longest name")
    os.setxattr(name, "user.gone", b"x")
    os.removexattr(name, "user.gone")
    fails(errno.ERANGE, os.setxattr, name, "user." + "n" * 251, b"")
    fails(errno.ENOENT, os.setxattr, "nothing", "user.k", b"x")
    # a buffer that is too small, and asking for the size alone
    small = ctypes.create_string_buffer(4)
    assert libc.getxattr(name.encode(), b"user.k", small, 4) == -1
    assert ctypes.get_errno() == errno.ERANGE
    assert libc.getxattr(name.encode(), b"user.k", None, 0) == 19
    assert libc.listxattr(name.encode(), small, 4) == -1
    assert ctypes.get_errno() == errno.ERANGE
os.setxattr("l", "trusted.t", b"of the link", follow_symlinks=False)
assert os.listxattr("l", follow_symlinks=False) == ["trusted.t"]
assert "trusted.t" not in os.listxattr("l")
os.link("a", "b")
os.rename("d", "e")

# trusted names are for root alone to see; of a file that all may read
os.setxattr("a", "trusted.t", b"x")
if os.fork() == 0:
    seen = None
    try:
        os.setgroups([])
        os.setresgid(2001, 2001, 2001)
        os.setresuid(2001, 2001, 2001)
        seen = sorted(os.listxattr("a"))
    finally:
        os._exit(0 if seen == ["user.bytes", "user.empty", "user.k", "user." + "n" * 250] else 1)
assert "trusted.t" in os.listxattr("a")
assert os.wait()[1] == 0, "others see trusted names, or miss some"
os.removexattr("a", "trusted.t")
END
check()
{
	python3 - "$mnt" <<'END' || fail "attributes $1"
import os, sys
os.chdir(sys.argv[1])
want = {"user.k": b"another, longer one", "user.empty": b"", "user.bytes": bytes(range(256)) * 8,
        "user." + "n" * 250: b"the longest name"}
for name in "a", "b", "e":
    got = {k: os.getxattr(name, k) for k in os.listxattr(name)}
    assert got == want, (name, got)
assert os.getxattr("l", "trusted.t", follow_symlinks=False) == b"of the link"
END
}
check "as written"
crash_mount
check "after kill -9"
"$KVFS" checkpoint "$mnt"
crash_mount
check "from a checkpoint"
unmount mnt
mount_primary v mnt
# Without the option they can't be seen, and are kept.
python3 -c 'import errno, os, sys
for call in os.listxattr, lambda p: os.setxattr(p, "user.k", b""):
    try:
        assert call(sys.argv[1]) == []
    except OSError as e:
        assert e.errno == errno.EOPNOTSUPP, e' "$mnt/a" || fail "without -o xattr"
unmount mnt
mount_primary v mnt xattr
check "after a mount without the option"
unmount mnt
expect 0 "$FSCK" "$tmp/v"
