#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Unknown options and bad values of each, by every route: -o, --NAME, fstab's mount(8),
# configuration files.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"
# shellcheck source=tests/shell/bad_functions.sh
. "$(dirname "$0")/bad_functions.sh"

make_volume v -s 16M
mkdir "$tmp/m"
bad() # ROLE OPTION TEXT
{
	case $1 in
	mount) places="$tmp/v $tmp/m" ;;
	mirror) places="$tmp/v" ;;
	esac
	# shellcheck disable=SC2086 # two words
	refuse 2 "$3" "$1" -o "$2" $places
}

for option in colour colour=red "colour=" =red "arena_=1" "ARENA=64M" "min-mirrors=1"; do
	bad mount "$option" "unknown option"
done
refuse 2 "unknown option 'colour'|--help" mount --colour=red "$tmp/v" "$tmp/m"
refuse 2 "unknown flag '-x'|--help" mount -x "$tmp/v" "$tmp/m"
refuse 2 "-o needs" mount "$tmp/v" "$tmp/m" -o
refuse 2 "unknown command 'monut'|--help" monut "$tmp/v" "$tmp/m"
for size in arena mr_cache_size; do
	for value in lots -1 1.5.2 0x10 12Q "64M " 99999999999999999999 64MM; do
		bad mount "$size=$value" "$size"
	done
	bad mount "$size" "$size needs a value"
	bad mount "$size=" "$size needs a value"
done
for number in inodes min_mirrors timeout connect_timeout lanes poll_us threads; do
	for value in many -1 1.5 99999999999999999999 1K "1 " ""; do
		bad mount "$number=$value" "$number"
	done
done
bad mount arena=1M "between 16.00 MiB and"
bad mount arena=100T "between 16.00 MiB and"
bad mount timeout=0 "from 1 to 3600"
bad mount lanes=0 "from 1 to 40"
bad mount lanes=41 "from 1 to 40"
bad mount lanes_open=41 "from 1 to 40"
bad mount lanes=8,lanes_open=4 "fewer than lanes=8"
bad mount threads=17 "from 1 to 16"
bad mount inodes=1 "inodes"
bad mount poll_us=1000001 "poll_us"
bad mount protocol=D "one of A|B|C"
bad mount protocol=AB "protocol"
bad mount transport=pigeon "transport"
bad mount xattr=perhaps "on or off"
bad mount min_mirrors=1 "min_mirrors=1|0 mirrors are given"
bad mirror ring=1K,listen=shm:s "ring"
for address in host : :1 host: host:0 host:65536 host:port host:1:2 tcp: tcp:h tcp:h:-1 udp:h:1 \
	"[::1" "[::1]" shm: \
	"shm:$(printf 's%.0s' $(seq 200))"; do
	bad mount "mirror=$address" "mirror="
	[ "$address" = host:0 ] || bad mirror "listen=$address" "listen=" # 0: any free port
done
bad mount "$(printf 'mirror=h:1,%.0s' $(seq 17))" "more than 16"
bad mount listen=h:1 "belongs to kvfs mirror"
bad mirror mirror=h:1 "belongs to kvfs mount"
refuse 2 "a mirror needs listen=" mirror "$tmp/v"
bad mount "$(printf 'x%.0s' $(seq 5000))" "longer than"

# what the machine has not got
refuse 1 "arena=60.00 TiB|this machine's memory|smaller arena=" mount -o arena=60T "$tmp/v" "$tmp/m"
limited() # LIMIT TEXT ARENA
{
	refuse_run 1 "$2" sh -c "ulimit $1 && exec '$KVFS' mount -o arena=$3 '$tmp/v' '$tmp/m'"
}
# shellcheck disable=SC2119 # with any sanitizer
sanitized || # its shadow of all memory is above any limit
	limited "-v 300000" "arena=2.00 GiB|smaller arena=" 2G
for files in 8 16 64; do
	limited "-n $files" "open files|ulimit -n" 64M
done
limited "-f 1000" "ulimit -f" 64M

# configuration files: the volume's here, /etc/kvfs.conf in a mount namespace of its own
conf() # TEXT EXPECTED
{
	printf '%b' "$1" >"$tmp/v/kvfs.conf"
	refuse 2 "$2" mount "$tmp/v" "$tmp/m"
}
conf 'arena=wrong\n' "kvfs.conf line 1|arena"
conf '# text\n\n  arena = 64M\n' "kvfs.conf line 3"
conf 'arena=64M\ncolour=red' "kvfs.conf line 2|unknown option 'colour'"
conf '[mount]\n' "kvfs.conf line 1"
conf '\0\0\0\n=\n' "kvfs.conf line 2"
conf "$(printf '#%.0s' $(seq 2000))\narena=x\n" "kvfs.conf line 1|longer than"
rm "$tmp/v/kvfs.conf"
mkdir "$tmp/v/kvfs.conf"
refuse 1 "cannot read $tmp/v/kvfs.conf" mount "$tmp/v" "$tmp/m"
rmdir "$tmp/v/kvfs.conf"
printf 'arena=64M # small\r\n\tthreads=3  \nlisten=127.0.0.1:1\nprotocol=A' >"$tmp/v/kvfs.conf"
expect 0 "$KVFS" mount -o protocol=B "$tmp/v" "$tmp/m"
"$KVFS" status --json "$tmp/m" >"$tmp/status"
grep -q '"arena_bytes": 67108864' "$tmp/status" || fail "kvfs.conf was not read"
grep -q '"protocol": "B"' "$tmp/status" || fail "the command line did not win"
expect 0 "$KVFS" umount "$tmp/m"
rm "$tmp/v/kvfs.conf"
if unshare -m true 2>/dev/null; then
	echo 'arena=wrong' >"$tmp/conf"
	refuse_run 2 "/etc/kvfs.conf line 1|arena" unshare -m sh -c "
		cp -r /etc '$tmp/etc' 2>/dev/null # a file of it may have gone meanwhile
		mount --bind '$tmp/etc' /etc || exit 9
		cat '$tmp/conf' >/etc/kvfs.conf
		exec '$KVFS' mount '$tmp/v' '$tmp/m'"
fi

# as mount(8) calls it
mkdir "$tmp/sbin"
ln -s "$(readlink -f "$KVFS")" "$tmp/sbin/mount.kvfs"
ln -s "$(readlink -f "$KVFS")" "$tmp/sbin/mount.fuse.kvfs"
for helper in mount.kvfs mount.fuse.kvfs; do
	refuse_run 2 "unknown option 'colour'" "$tmp/sbin/$helper" "$tmp/v" "$tmp/m" \
		-o rw,colour=red
	refuse_run 1 "no such directory" "$tmp/sbin/$helper" "$tmp/none" "$tmp/m" -o rw
	refuse_run 2 "MOUNTPOINT" "$tmp/sbin/$helper" "$tmp/v"
	expect 0 "$tmp/sbin/$helper" "$tmp/v" "$tmp/m" -f -o arena=64M
	nothing_left
	expect 0 "$tmp/sbin/$helper" "$tmp/v" "$tmp/m" -s -n -v -t fuse.kvfs \
		-o rw,nosuid,nodev,noexec,arena=64M
	grep " $tmp/m " /proc/self/mountinfo | grep -q noexec || fail "mount flags are lost"
	umount "$tmp/m"
	wait_for "! pgrep -f -- '$helper.*$tmp/' >/dev/null" 30
	nothing_left
done
