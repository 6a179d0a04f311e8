#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fio writes and reads at random, 4k to 64k, direct and through the page cache, and verifies each
# block; once more after a kill -9.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need fio
one_mount 64M
# fio leaves the state of its verification where it runs.
run()
{
	(cd "$tmp" && fio --name=verify --directory="$mnt" --rw=randrw --bsrange=4k-64k \
		--size=48M --io_size=64M --numjobs=2 --verify=crc32c --verify_fatal=1 \
		--randseed="$seed" --group_reporting --minimal "$@") \
		>"$tmp/out" 2>&1 || fail "fio $*: $(cat "$tmp/out")"
}

echo "seed $seed"
run --direct=1 --ioengine=psync
crash_mount
run --direct=1 --ioengine=psync --verify_only
rm "$mnt"/verify.*
run --direct=0 --ioengine=mmap
rm "$mnt"/verify.*
run --direct=1 --ioengine=io_uring --iodepth=8
