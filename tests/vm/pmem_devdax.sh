#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A volume whose logs are two device-DAXes, with its directory on an ordinary file system; refused
# where a device holds something; all of it there after the guest's power failed. And the arena on a
# device-DAX, from where values go to a mirror by RDMA.
# shellcheck source=tests/vm/pmem_functions.sh
. "$(dirname "$0")/pmem_functions.sh"
rig_up 1 --nvdimm 64M,64M,128M,128M --pmem devdax

guest <<'END'
ls /dev/dax*
ndctl create-namespace -f -e namespace2.0 -m fsdax >/dev/null
mkfs.ext4 -q -b 4096 /dev/pmem2
mkdir -p /tmp/p /tmp/m
mount /dev/pmem2 /tmp/p
"$MKFS" --log-device /dev/dax0.0 --log-device /dev/dax0.0 /tmp/p/v 2>/tmp/err &&
	no "one device for two logs"
says "a device each" /tmp/err
"$MKFS" --log-device /dev/dax0.0 --log-device /dev/dax1.0 /tmp/p/v >/tmp/out
says "real persistent memory (DAX)" /tmp/out
says "/dev/dax1.0" /tmp/out
logs="--log-device /dev/dax0.0 --log-device /dev/dax1.0"
"$MKFS" $logs /tmp/p/w 2>/tmp/err && no "overwrote a log"
says "holds a log pool" /tmp/err
"$KVFS" mount -o arena=64M /tmp/p/v /tmp/m
"$MKFS" -f $logs /tmp/p/w 2>/tmp/err && no "overwrote a log in use"
says "in use as a log" /tmp/err
echo kept >/tmp/m/a
"$KVFS" umount /tmp/m
"$FSCK" /tmp/p/v
# the arena on a device: not on one with a log, and not beyond it
"$KVFS" mount -o arena=32M,memory=devdax:/dev/dax0.0 /tmp/p/v /tmp/m 2>/tmp/err &&
	no "took a log for memory"
"$KVFS" mount -o arena=1G,memory=devdax:/dev/dax3.0 /tmp/p/v /tmp/m 2>/tmp/err &&
	no "took more than there is"
says "give a smaller arena=" /tmp/err
"$MKFS" -q -s 32M --join /tmp/p/v/key /tmp/w
"$KVFS" mirror -o arena=128M,ring=8M,ack_timeout=18,listen=verbs:10.77.0.1:7000 /tmp/w
"$KVFS" mount -o memory=devdax:/dev/dax3.0,ack_timeout=18,lanes=2,lanes_open=4 \
	-o mirror=verbs:10.77.0.1:7000 /tmp/p/v /tmp/m
[ "$(cat /tmp/m/a)" = kept ] || no "lost"
dd if=/dev/urandom of=/tmp/m/big bs=1M count=10 2>/dev/null
sent_in_place /tmp/w
sha256sum <"/tmp/m/big" >/tmp/p/sum
sync
echo last >/tmp/m/b
END

guest_power_fails
guest <<'END'
mkdir -p /tmp/p /tmp/m
mount /dev/pmem2 /tmp/p
"$KVFS" mount -o memory=devdax:/dev/dax3.0 /tmp/p/v /tmp/m
[ "$(cat /tmp/m/a) $(cat /tmp/m/b)" = "kept last" ] || no "lost"
sha256sum <"/tmp/m/big" | cmp - /tmp/p/sum || no "other bytes"
"$KVFS" umount /tmp/m
"$FSCK" /tmp/p/v
END
