#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A volume on /dev/pmem0 itself, and one in a directory on a DAX file system: made on real DAX and
# said so, refused where something lies, mounted where nobody sees it, and all of it there after the
# guest's power failed.
# shellcheck source=tests/vm/pmem_functions.sh
. "$(dirname "$0")/pmem_functions.sh"
rig_up 1 --nvdimm 256M,256M --pmem fsdax

guest <<'END'
"$KVFS" doctor >/tmp/doctor || true
grep -q '^ok  *pmem.namespace' /tmp/doctor || no "$(cat /tmp/doctor)"
grep -q '^ok  *rdma.operations' /tmp/doctor || no "$(cat /tmp/doctor)"

# the device itself
"$MKFS" -n /dev/pmem0 >/tmp/out
says "Would make" /tmp/out
"$MKFS" -s 32M --key-copy /tmp/key /dev/pmem0 >/tmp/out
says "real persistent memory (DAX)" /tmp/out
[ -s /tmp/key ] || no "no copy of the key"
"$MKFS" -s 32M /dev/pmem0 2>/tmp/err && no "overwrote a file system"
says "holds a file system or the like (ext4)" /tmp/err
"$MKFS" -f -s 32M /dev/pmem0 >/tmp/out
mkdir -p /tmp/m
"$KVFS" mount -o arena=64M /dev/pmem0 /tmp/m
! grep -v fuse /proc/self/mounts | grep /dev/pmem0 || no "its file system is mounted somewhere"
echo kept >/tmp/m/a
"$KVFS" status /tmp/m >/tmp/out
says "persistent memory" /tmp/out
"$KVFS" status /dev/pmem0 >/tmp/out
says "mounted on /tmp/m" /tmp/out
"$MKFS" -f -s 32M /dev/pmem0 2>/tmp/err && no "overwrote a volume in use"
says "in use" /tmp/err
"$FSCK" /dev/pmem0 2>/tmp/err && no "checked a volume in use"
says "in use" /tmp/err
"$KVFS" mount -o arena=64M /dev/pmem0 /tmp/m 2>/tmp/err && no "mounted twice"

# a killed daemon leaves no mount of the file system
pid=$("$KVFS" status --json /tmp/m | sed -n 's/.*"pid": \([0-9]*\).*/\1/p')
kill -9 "$pid"
until [ ! -d "/proc/$pid" ]; do :; done
"$KVFS" mount -o arena=64M /dev/pmem0 /tmp/m
[ "$(cat /tmp/m/a)" = kept ] || no "lost"
"$KVFS" umount /dev/pmem0
"$FSCK" /dev/pmem0

# a directory on a file system with DAX, and the same without
mkfs.ext4 -q -b 4096 /dev/pmem1
mkdir -p /tmp/p
mount -o dax /dev/pmem1 /tmp/p
"$MKFS" -s 32M /tmp/p/v >/tmp/out
says "real persistent memory (DAX)" /tmp/out
umount /tmp/p
mount /dev/pmem1 /tmp/p
"$MKFS" -s 32M /tmp/p/w >/tmp/out
says "an ordinary file, not persistent memory" /tmp/out
"$KVFS" mount -o arena=64M /tmp/p/v /tmp/m 2>/tmp/err
says "mount its file system with -o dax" /tmp/err
"$KVFS" umount /tmp/m
umount /tmp/p

# what is written now is only in the log when the power fails
"$KVFS" mount -o arena=64M /dev/pmem0 /tmp/m
echo last >/tmp/m/b
END

guest_power_fails
guest <<'END'
mkdir -p /tmp/m
"$KVFS" mount -o arena=64M /dev/pmem0 /tmp/m
[ "$(cat /tmp/m/a) $(cat /tmp/m/b)" = "kept last" ] || no "lost"
"$KVFS" umount /tmp/m
"$FSCK" /dev/pmem0
END
