#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Requests over io_uring while the log has no room: what has to wait for it leaves its processor's
# ring, also where the room went between the ring's look and the request's turn (large writes on all
# processors at once). Whoever only looks is answered by each ring, though no write can end, as the
# thread that makes checkpoints is held. Let go, it lets all of them end, with nothing lost.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
make_volume v -s 16M
mount_volume timeout=100
[ "$(status_of m .requests.rings)" -gt 0 ] ||
	skip "no rings: $(status_of m .requests.no_rings_because)"
cat >"$tmp/put_off.py" <<'END'
import ctypes, json, mmap, os, signal, struct, subprocess, sys, time
kvfs, mnt, rounds, patience = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
MIB, FILE_MIB, WRITERS = 1 << 20, 8, 3 # of each processor
SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
cpus = sorted(os.sched_getaffinity(0))
counts = mmap.mmap(-1, 8 * len(cpus) * WRITERS) # writes that have ended
begun = mmap.mmap(-1, 8 * len(cpus) * WRITERS)
order = mmap.mmap(-1, 1) # R: rest, W: write, E: end

def status():
    return json.loads(subprocess.check_output([kvfs, "status", "--json", mnt]))

def fail(text):
    print(text, status()["commit"], written())
    os.killpg(0, signal.SIGKILL)

def until(what, condition):
    end = time.monotonic() + 60 * patience
    while not condition():
        if time.monotonic() > end:
            fail("not " + what)
        time.sleep(0.01)

def figures(shared):
    return struct.unpack("%dQ" % (len(shared) // 8), shared[:])

def written():
    return figures(counts)

def write(index):
    os.sched_setaffinity(0, [cpus[index // WRITERS]])
    fd = os.open("%s/w%d" % (mnt, index), os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    block, n = mmap.mmap(-1, MIB), 0
    while order[:] != b"E":
        begun[8 * index:8 * index + 8] = struct.pack("Q", n + 1) # before the look
        if order[:] != b"W":
            begun[8 * index:8 * index + 8] = struct.pack("Q", n)
            time.sleep(0.005)
            continue
        block[:] = struct.pack(">QQ", index, n) * (MIB // 16)
        if os.pwrite(fd, block, n % FILE_MIB * MIB) != MIB:
            os._exit(1)
        n += 1
        counts[8 * index:8 * index + 8] = struct.pack("Q", n)
    os._exit(0)

def check(index):
    total = written()[index]
    with open("%s/w%d" % (mnt, index), "rb") as f:
        for n in range(max(0, total - FILE_MIB), total):
            f.seek(n % FILE_MIB * MIB)
            assert f.read(MIB) == struct.pack(">QQ", index, n) * (MIB // 16), (index, n)

def ptrace(request, tid):
    if libc.ptrace(request, tid, 0, 0) != 0:
        print("ptrace:", os.strerror(ctypes.get_errno()))
        os.killpg(0, signal.SIGKILL)

def hold(pid, tid):
    "Stops one thread of the daemon, which has nothing to do now, while it waits for work."
    def waits():
        text = open("/proc/%d/task/%d/syscall" % (pid, tid)).read().split()
        # futex(2), and that again, after a stop
        return text[0] in {"x86_64": ("202", "219"), "aarch64": ("98", "128")}[os.uname().machine]
    def held():
        if status()["checkpoint"]["running"]:
            return False
        ptrace(SEIZE, tid)
        ptrace(INTERRUPT, tid)
        os.waitpid(tid, WALL)
        if waits():
            return True
        ptrace(DETACH, tid)
        return False
    until("held", held)

def full():
    "The second pool, too: until there is a checkpoint there is room for one more, at the most."
    s = status()
    left = s["log"]["active_capacity_bytes"] - s["log"]["active_used_bytes"]
    return not s["log"]["can_switch"] and left < 2.6 * MIB and s["commit"]["waiting_for_log"]

def look(name):
    "From each processor: a lookup, the attributes of the whole, bytes that are not cached."
    longest, block = 0, mmap.mmap(-1, 4096)
    for cpu in cpus:
        os.sched_setaffinity(0, [cpu])
        for n in range(20):
            began = time.monotonic()
            assert not os.path.exists("%s/none-%s-%d-%d" % (mnt, name, cpu, n))
            os.statvfs(mnt)
            os.preadv(quiet, [block], 0)
            assert block[:5] == b"quiet", block[:5]
            longest = max(longest, time.monotonic() - began)
    os.sched_setaffinity(0, cpus)
    return longest

order[:] = b"R"
with open(mnt + "/quiet", "wb") as f:
    f.write(b"quiet" * 1000)
quiet = os.open(mnt + "/quiet", os.O_RDONLY | os.O_DIRECT)
pid = status()["pid"]
tid, = [int(t) for t in os.listdir("/proc/%d/task" % pid)
        if open("/proc/%d/task/%s/comm" % (pid, t)).read().strip() == "kv-ckpt"]
writers = []
for index in range(len(cpus) * WRITERS):
    writers.append(os.fork())
    if writers[-1] == 0:
        write(index)
signal.signal(signal.SIGALRM, lambda *_: fail("a look hangs"))
for n in range(rounds):
    hold(pid, tid)
    order[:] = b"W"
    until("waiting for log room", full)
    last = written()
    signal.alarm(30 * patience) # heard at the writers' deadline, if a ring waits with them
    longest = look(str(n))
    signal.alarm(0)
    # those that had room already
    assert sum(written()) <= sum(last) + len(writers) + 1, "writes ended: the log was not full"
    ptrace(DETACH, tid)
    until("all writers go on", lambda: all(b > a + 1 for a, b in zip(last, written())))
    order[:] = b"R"
    until("at rest", lambda: figures(begun) == written())
    print("round %d: %d writes so far, the longest look took %.3f s" % (
        n, sum(written()), longest))
order[:] = b"E"
for w in writers:
    assert os.waitpid(w, 0)[1] == 0, "a write failed"
for index in range(len(writers)):
    check(index)
END
timeout 500 setsid -w python3 "$tmp/put_off.py" "$KVFS" "$tmp/m" "$(portion 20)" \
	"${KVFS_TEST_PATIENCE:-1}" || fail "with a log without room"
unmount m
expect 0 "$FSCK" "$tmp/v"
