#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each wrong request: one clear line, a non-zero exit, nothing left behind.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

refuse()
{
	refuse_code=$1
	refuse_text=$2
	shift 2
	expect "$refuse_code" "$KVFS" "$@"
	one_line "$refuse_text"
}

make_volume v
mkdir "$tmp/m" "$tmp/empty"
refuse 1 "no such directory" mount "$tmp/none" "$tmp/m"
refuse 1 "not a kvfs volume" mount "$tmp/empty" "$tmp/m"
refuse 1 "does not exist" mount "$tmp/v" "$tmp/nowhere"
refuse 1 "not a directory" mount "$tmp/v" "$tmp/v/key"
refuse 2 "unknown option 'colour'" mount -o colour=red "$tmp/v" "$tmp/m"
refuse 2 "arena" mount -o arena=lots "$tmp/v" "$tmp/m"
refuse 2 "needs a value" mount -o arena "$tmp/v" "$tmp/m"
refuse 2 "port" mount -o mirror=host "$tmp/v" "$tmp/m"
refuse 2 "min_mirrors" mount -o min_mirrors=1 "$tmp/v" "$tmp/m"
refuse 2 "belongs to kvfs mirror" mount -o listen=tcp:h:1 "$tmp/v" "$tmp/m"
refuse 2 "listen=" mirror "$tmp/v"
refuse 2 "MOUNTPOINT" mount "$tmp/v"
refuse 1 "more than this machine's memory" mount -o arena=60T "$tmp/v" "$tmp/m"
refuse 1 "127.0.0.1:9" mount -o arena=64M,mirror=tcp:127.0.0.1:9,connect_timeout=1 "$tmp/v" "$tmp/m"
refuse 1 "127.0.0.1:9" mount -o arena=64M,mirror=127.0.0.1:9,connect_timeout=1 "$tmp/v" "$tmp/m"
refuse 1 "host name can't be resolved" \
	mount -o arena=64M,mirror=no.such.host.invalid:7470,connect_timeout=5 "$tmp/v" "$tmp/m"
refuse 1 "no kvfs is running" status "$tmp/v"
refuse 1 "neither" status "$tmp/empty"
echo "arena=wrong" >"$tmp/v/kvfs.conf"
refuse 2 "kvfs.conf line 1" mount "$tmp/v" "$tmp/m"
rm "$tmp/v/kvfs.conf"
mount_volume
mkdir "$tmp/m2"
refuse 1 "in use" mount "$tmp/v" "$tmp/m2"
refuse 1 "in use" mount "$tmp/v" "$tmp/m"
exec 9>"$tmp/m/open"
refuse 1 "in use" umount "$tmp/m"
exec 9>&-
expect 0 "$KVFS" umount "$tmp/m"
grep -q "$tmp" /proc/self/mountinfo && fail "a mount was left"
exit 0
