#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A /dev/pmem0 with two signatures, a file system over the rest of something else, is not taken for
# an empty one: libblkid names neither then. Nothing is written to it without -f.
# shellcheck source=tests/vm/pmem_functions.sh
. "$(dirname "$0")/pmem_functions.sh"
rig_up 1 --nvdimm 256M --pmem fsdax

guest <<'END'
mkfs.ext4 -q -b 4096 /dev/pmem0
printf SWAP-SPACE | dd of=/dev/pmem0 bs=1 seek=4086 conv=notrunc 2>/dev/null
before=$(sha256sum </dev/pmem0)
"$MKFS" -s 32M /dev/pmem0 2>/tmp/err && no "overwrote a file system"
says "holds a file system or the like (several signatures" /tmp/err
[ "$(sha256sum </dev/pmem0)" = "$before" ] || no "the device was written"
"$MKFS" -f -s 32M /dev/pmem0 >/tmp/out
says "real persistent memory (DAX)" /tmp/out
mkdir -p /tmp/m
"$KVFS" mount -o arena=64M /dev/pmem0 /tmp/m
"$KVFS" umount /tmp/m
"$FSCK" /dev/pmem0
END
