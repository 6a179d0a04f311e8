#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Volumes that can't be served: missing, none, in use, of another version, damaged, unreadable,
# without their parts.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"
# shellcheck source=tests/shell/bad_functions.sh
. "$(dirname "$0")/bad_functions.sh"

make_volume v -s 16M
mkdir "$tmp/m" "$tmp/empty"
echo text >"$tmp/file"

refuse 1 "$tmp/none|no such directory|mkfs.kvfs" mount "$tmp/none" "$tmp/m"
refuse 1 "$tmp/file|not a directory" mount "$tmp/file" "$tmp/m"
refuse 1 "$tmp/empty|not a kvfs volume|mkfs.kvfs" mount "$tmp/empty" "$tmp/m"
refuse 2 "VOLUME" mount "" "$tmp/m"
for text in "" "kvfs" "$(head -c 5000 /dev/zero | tr '\0' x)"; do
	printf %s "$text" >"$tmp/empty/superblock"
	refuse 1 "$tmp/empty|not a kvfs volume" mount "$tmp/empty" "$tmp/m"
done
rm "$tmp/empty/superblock"
mkfifo "$tmp/empty/superblock"
refuse 1 "$tmp/empty" mount "$tmp/empty" "$tmp/m"
rm "$tmp/empty/superblock"
ln -s nowhere "$tmp/empty/superblock"
refuse 1 "$tmp/empty" mount "$tmp/empty" "$tmp/m"

# the superblock: bytes at OFFSET become TEXT, with a right checksum or not
cp "$tmp/v/superblock" "$tmp/super"
restore() { cat "$tmp/super" >"$tmp/v/superblock"; }
patch() # COPY OFFSET HEX [sealed]
{
	python3 - "$tmp/v/superblock" "$@" <<'END'
import sys
path, copy, offset = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
text = bytes.fromhex(sys.argv[4])
def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff
with open(path, "r+b") as f:
    f.seek(copy * 65536)
    s = bytearray(f.read(4096))
    s[offset:offset + len(text)] = text
    if len(sys.argv) > 5:
        s[12:16] = bytes(4)
        s[12:16] = crc32c(s).to_bytes(4, "big")
    f.seek(copy * 65536)
    f.write(s)
END
}
command -v python3 >/dev/null || skip "no python3"
patch 0 8 00000063 sealed
patch 1 8 00000063 sealed
refuse 1 "$tmp/v|version|format" mount "$tmp/v" "$tmp/m"
expect 4 "$FSCK" "$tmp/v"
cat "$tmp/out" "$tmp/err" | grep -q "another version" || fail "fsck does not say the version"
restore
patch 0 16 80000000 sealed
patch 1 16 80000000 sealed
refuse 1 "$tmp/v|feature" mount "$tmp/v" "$tmp/m"
restore
patch 0 40 ffff
patch 1 40 ffff
refuse 1 "$tmp/v|both copies|mkfs.kvfs --join" mount "$tmp/v" "$tmp/m"
restore
patch 0 0 00000000
patch 1 0 00000000
refuse 1 "$tmp/v|not a kvfs volume" mount "$tmp/v" "$tmp/m"
restore
patch 0 40 00000001 sealed
patch 1 40 00000001 sealed
refuse 1 "$tmp/v|incomplete" mount "$tmp/v" "$tmp/m"
restore

# one damaged copy: the other is used, and that is said
for copy in 0 1; do
	patch $copy 60 ffffffff
	expect 0 "$KVFS" mount -o arena=64M "$tmp/v" "$tmp/m"
	[ "$copy" -eq 1 ] || one_line "superblock is damaged"
	expect 0 "$KVFS" umount "$tmp/m"
	restore
done

# parts that are missing, of another volume, or cut
for part in log.0 log.1 ckpt key; do
	mv "$tmp/v/$part" "$tmp/part"
	refuse 1 "$tmp/v|$part" mount "$tmp/v" "$tmp/m"
	mv "$tmp/part" "$tmp/v/$part"
done
make_volume other -s 16M
"$FILL" "$tmp/other" append:3
mv "$tmp/v/log.0" "$tmp/part"
cp "$tmp/other/log.0" "$tmp/v/log.0"
refuse 1 "$tmp/v|log" mount "$tmp/v" "$tmp/m"
head -c 5000 "$tmp/part" >"$tmp/v/log.0"
refuse 1 "$tmp/v|log.0" mount "$tmp/v" "$tmp/m"
mv "$tmp/part" "$tmp/v/log.0"
cp "$tmp/v/key" "$tmp/part"
cat "$tmp/other/key" >"$tmp/v/key"
refuse 1 "$tmp/v/key|another volume|copy the key" mount "$tmp/v" "$tmp/m"
echo nonsense >"$tmp/v/key"
refuse 1 "$tmp/v/key|not a key file" mount "$tmp/v" "$tmp/m"
cat "$tmp/part" >"$tmp/v/key"

# in use
mkdir "$tmp/m2"
mount_volume
for command in "mount $tmp/v $tmp/m2" "mirror -o listen=shm:$tmp/s $tmp/v"; do
	# shellcheck disable=SC2086 # words
	expect 1 "$KVFS" $command
	one_line "in use"
done
"$KVFS" umount "$tmp/m"
nothing_left
refuse 1 "$tmp/v|no kvfs is running" status "$tmp/v"
refuse 1 "$tmp/v|no kvfs is running" checkpoint "$tmp/v"
refuse 1 "$tmp/v|no kvfs is running" umount "$tmp/v"
refuse 1 "$tmp/m" umount "$tmp/m"
expect 0 "$KVFS" mount -o arena=64M "$tmp/v" "$tmp/m"
"$KVFS" umount "$tmp/m"
