#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Below min_mirrors a write fails with EIO after timeout=, never hangs, and reads go on; when the
# mirror is back, so are the writes. The timeout is long beside what holds up a busy machine.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
arena=64M
timeout=6
port=$(free_port)
expect 0 "$MKFS" -q -s 32M "$tmp/p"
expect 0 "$MKFS" -q -s 32M --join "$tmp/p/key" "$tmp/m1"
expect 0 "$MKFS" -q -s 32M --join "$tmp/p/key" "$tmp/m2"
start_mirror m1 '' "tcp:127.0.0.1:$port"
start_mirror m2 '' "shm:$tmp/ring"
mount_primary p mnt "min_mirrors=2,timeout=$timeout,mirror=tcp:127.0.0.1:$port,mirror=shm:$tmp/ring"
echo before >"$tmp/mnt/key"
wait_for "in_sync mnt 2" 30

# All at once, each in a directory of its own (within one, the kernel lets changes wait for each
# other), fail with EIO after about the timeout; reads are answered while all of them wait yet.
cat >"$tmp/degraded.py" <<'END'
import errno, os, sys, threading, time
mnt, timeout, patience = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
done = []

def attempt(name, action):
    began = time.monotonic()
    try:
        action()
        done.append((name, None, time.monotonic() - began))
    except OSError as e:
        done.append((name, e.errno, time.monotonic() - began))

def write():
    fd = os.open(mnt + "/key", os.O_WRONLY)
    try:
        os.write(fd, b"x")
    finally:
        os.close(fd)

actions = {
    "write": write,
    "create": lambda: os.close(os.open(mnt + "/d1/new", os.O_WRONLY | os.O_CREAT)),
    "mkdir": lambda: os.mkdir(mnt + "/d2/dir"),
    "rename": lambda: os.rename(mnt + "/d3/a", mnt + "/d3/b"),
    "unlink": lambda: os.unlink(mnt + "/d4/c"),
    "chmod": lambda: os.chmod(mnt + "/d5/d", 0o600),
    "truncate": lambda: os.truncate(mnt + "/d6/e", 1),
}
threads = [threading.Thread(target=attempt, args=a) for a in actions.items()]
for t in threads:
    t.start()
began = time.monotonic()
assert open(mnt + "/quiet").read() == "quiet\n"
os.stat(mnt + "/quiet")
quick = time.monotonic() - began
assert not done, "a read of what is committed took %.2f s, %s was quicker" % (quick, done)
for t in threads:
    t.join(30 * patience)
    assert not t.is_alive(), "a write hangs"
for name, err, seconds in done:
    print("%s: %s after %.2f s" % (name, errno.errorcode.get(err, "success"), seconds))
for name, err, seconds in done:
    assert err == errno.EIO, name
    assert timeout / 2 <= seconds <= timeout + 4, name
END
make_keys()
{
	rm -rf "$tmp"/mnt/d?
	mkdir "$tmp/mnt/d1" "$tmp/mnt/d2" "$tmp/mnt/d3" "$tmp/mnt/d4" "$tmp/mnt/d5" "$tmp/mnt/d6"
	for name in d3/a d4/c d5/d d6/e quiet; do
		echo "${name#*/}" >"$tmp/mnt/$name"
	done
}
make_keys
cat "$tmp/mnt/quiet" >/dev/null
for i in 1 2; do
	kill_pids "$(pid_of m$i)"
	timeout 200 python3 "$tmp/degraded.py" "$tmp/mnt" "$timeout" "${KVFS_TEST_PATIENCE:-1}" ||
		fail "mirror $i away"
	if [ $i -eq 1 ]; then
		start_mirror m1 '' "tcp:127.0.0.1:$port"
	else
		start_mirror m2 '' "shm:$tmp/ring"
	fi
	wait_for "in_sync mnt 2" 60
	timeout 30 sh -c "echo after $i >'$tmp/mnt/key'" ||
		fail "a write fails though mirror $i is back"
	[ "$(cat "$tmp/mnt/key")" = "after $i" ] || fail "the key holds $(cat "$tmp/mnt/key")"
	make_keys
	wait_for "in_sync mnt 2" 60
	same_state mnt m1 m2
done
unmount mnt

# too_few_mirrors=readonly: after timeout= changes fail at once, until the mirror is back
options=min_mirrors=2,timeout=$timeout,too_few_mirrors=readonly
mount_primary p mnt "$options,mirror=tcp:127.0.0.1:$port,mirror=shm:$tmp/ring"
wait_for "in_sync mnt 2" 30
exec 3>"$tmp/mnt/gone"
rm "$tmp/mnt/gone"
kill_pids "$(pid_of m1)"
wait_for '[ "$(status_of mnt .commit.read_only)" = true ]' 30
exec 3>&-
cat >"$tmp/readonly.py" <<'END'
import errno, os, sys, time
mnt, timeout = sys.argv[1], int(sys.argv[2])
began = time.monotonic()
for action in (lambda: os.open(mnt + "/quiet", os.O_WRONLY | os.O_TRUNC),
               lambda: os.mkdir(mnt + "/new"), lambda: os.unlink(mnt + "/quiet")):
    try:
        action()
        sys.exit("a change was taken")
    except OSError as e:
        assert e.errno == errno.EROFS, e
assert time.monotonic() - began < timeout, "they waited"
assert open(mnt + "/quiet").read() == "quiet\n"
END
timeout 100 python3 "$tmp/readonly.py" "$tmp/mnt" "$timeout" || fail "read-only for lack of mirrors"
"$KVFS" status "$tmp/mnt" | grep -q READ-ONLY || fail "kvfs status does not say read-only"
start_mirror m1 '' "tcp:127.0.0.1:$port"
wait_for "in_sync mnt 2" 60
wait_for '{ echo back >"$tmp/mnt/key"; } 2>/dev/null' 30
[ "$(status_of mnt .commit.read_only)" = false ] || fail "read-only with enough mirrors"
wait_for '[ "$(status_of mnt .store.orphans)" = 0 ]' 30 # closed while nothing could be changed

kill_pids "$(pid_of m1)"
# also with a mirror away an unmount ends, and a mount is refused
timeout 120 "$KVFS" umount "$tmp/mnt" || fail "umount below min_mirrors"
options=arena=64M,min_mirrors=2,connect_timeout=2
expect 1 timeout 60 "$KVFS" mount -o "$options,mirror=tcp:127.0.0.1:$port,mirror=shm:$tmp/ring" \
	"$tmp/p" "$tmp/mnt"
one_line "$port"
