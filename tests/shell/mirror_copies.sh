#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The primary's volume is restored from a copy, or two copies of it are mounted at once: the mirror
# does not mix their records, nor serve them by turns, and both sides say what happened.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

arena=128M
mirror=shm:$tmp/ring
make_volume a
make_volume b --join "$tmp/a/key"
"$KVFS" mirror -f -o "arena=$arena,listen=$mirror" "$tmp/b" 2>"$tmp/mirror.log" &
wait_for "[ -S $tmp/ring ]" 30
put()
{
	for n in $(seq "$2"); do
		echo "$1 $n" >"$tmp/${3:-m}/$1$n" || fail "write of $1$n"
	done
}
cuts()
{
	find "$tmp/b" -name 'cut-*' | wc -l
}
restore()
{
	rm -r "$tmp/a"
	cp -a "$tmp/old" "$tmp/a"
}
# refused VOLUME MOUNTPOINT TEXT
refused()
{
	mkdir -p "$tmp/$2"
	refused_options=arena=$arena,min_mirrors=1,connect_timeout=20,mirror=$mirror
	expect 1 timeout 60 "$KVFS" mount -o "$refused_options" "$tmp/$1" "$tmp/$2"
	grep -q "$3" "$tmp/err" || fail "it says: $(cat "$tmp/err")"
	[ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "more than one line: $(cat "$tmp/err")"
}

mount_primary a m "mirror=$mirror"
put base 1
unmount m
cp -a "$tmp/a" "$tmp/old" # of epoch 1.1
mount_primary a m "mirror=$mirror"
put new 50
unmount m

# alone it goes on past what the mirror has, in the same epoch
restore
mount_primary a m min_mirrors=0
put other 80
unmount m
mount_primary a m "mirror=$mirror"
wait_for "in_sync m 1" 30
same_state m b
[ "$(cuts)" -eq 1 ] || fail "what only the mirror had was not kept"
put live 5 # what is cut off is kept from the log; the rest came as an image
unmount m

# older than the mirror's promise, until it has passed that (1.3)
restore
refused a m 'stale epoch 1\.2.*1\.3; restored?'
refused a m 'another copy of this volume began epoch 1\.3'
[ "$(grep -c 'another copy of this volume' "$tmp/mirror.log")" -eq 1 ] ||
	fail "the mirror says: $(cat "$tmp/mirror.log")"
mount_primary a m "mirror=$mirror"
wait_for "in_sync m 1" 30
same_state m b
[ "$(cuts)" -eq 2 ] || fail "what only the mirror had was not kept"
[ ! -e "$tmp/m/other1" ] || fail "the restored volume has what was written after the copy"
unmount m

# two at once
cp -a "$tmp/a" "$tmp/c"
mount_primary a m "min_mirrors=1,mirror=$mirror"
refused c mc 'another copy of this volume began epoch'
rm -r "$tmp/c"
unmount m
cp -a "$tmp/a" "$tmp/c"
mount_primary a m "min_mirrors=1,mirror=$mirror"
mount_primary c mc "min_mirrors=0,mirror=$mirror"
put one 100
put two 20 mc
[ "$(status_of mc '.mirrors[0].state')" != live ] || fail "both are served"
same_state m b
[ "$(status_of m '.mirrors[0].reconnects')" = 0 ] || fail "the other threw the session out"
[ "$(cuts)" -eq 2 ] || fail "the mirror took records of both"
wait_for "status_of mc '.mirrors[0].last_error' | grep -q 'another copy of this volume'" 20
