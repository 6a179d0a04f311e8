#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Commands in a guest: exit code, input, output and error apart, deadline, several at once; a shell
# on a terminal; files there and back.
# shellcheck source=tests/vm/functions.sh
. "$(dirname "$0")/functions.sh"

rig_up 1 --no-rdma
expect 7 on 1 'echo to-out; echo to-err >&2; exit 7'
[ "$(cat "$tmp/out")" = to-out ] || fail "output: $(cat "$tmp/out")"
[ "$(cat "$tmp/err")" = to-err ] || fail "error: $(cat "$tmp/err")"
expect 127 "$RIG" run -n 1 -- /no/such/program
expect 137 on 1 'kill -9 $$'
expect 125 "$RIG" run -n 2 -- true
one_line "there is no guest 2"

# more than the channel's window, in both directions
head -c 3000000 /dev/urandom >"$tmp/blob"
"$RIG" run 1 -- cat <"$tmp/blob" >"$tmp/back" || fail "cat failed"
cmp "$tmp/blob" "$tmp/back" || fail "bytes changed on their way"
[ "$("$RIG" run --env KV_WORD=x 1 -- sh -c 'echo $KV_WORD; pwd' </dev/null)" = "x
$PWD" ] || fail "environment or directory"

# past its deadline, with its children, and nothing else
expect 0 on 1 'setsid sleep 301 >/dev/null 2>&1 &'
begin=$(date +%s)
expect 124 "$RIG" run -n --timeout 2 1 -- sh -c 'sleep 302 & sleep 302'
one_line "past its deadline"
[ $(($(date +%s) - begin)) -lt $((30 * ${KVFS_TEST_PATIENCE:-1})) ] ||
	fail "the deadline was late"
wait_for "! on 1 'pgrep -f \"[s]leep 302\"' >/dev/null" 100
expect 0 on 1 'pgrep -f "[s]leep 301"'

# a daemon that keeps the output open doesn't hold its command; a client that is killed ends its
# command
expect 0 on 1 'sleep 303 & echo started'
"$RIG" run -n 1 -- sleep 304 &
client=$!
wait_for "on 1 'pgrep -f \"[s]leep 304\"' >/dev/null" 200
kill -9 "$client"
wait_for "! on 1 'pgrep -f \"[s]leep 304\"' >/dev/null" 200

# two at once: the second writes what the first waits for
vm_timeout=200 on 1 'until [ -e /tmp/word ]; do sleep 0.1; done; cat /tmp/word' >"$tmp/word" &
reader=$!
must 1 'echo word >/tmp/word.new; mv /tmp/word.new /tmp/word'
wait "$reader" || fail "the first command failed"
[ "$(cat "$tmp/word")" = word ] || fail "it read '$(cat "$tmp/word")'"

# a person's shell, on a terminal
if command -v script >/dev/null; then
	expect 3 script -qec "$RIG shell --timeout 200 1" /dev/null <<-'END'
		test -t 0 && echo on-$((6 * 7))
		exit 3
	END
	in_out on-42
fi

mkdir -p "$tmp/dir/sub"
cp "$tmp/blob" "$tmp/dir/sub/blob"
ln -s blob "$tmp/dir/sub/link"
"$RIG" put 1 "$tmp/dir" /root/copy || fail "put failed"
must 1 'mv /root/copy/dir /root/copy/other; chmod 700 /root/copy/other/sub/blob'
"$RIG" get 1 /root/copy/other "$tmp/got" || fail "get failed"
cmp "$tmp/blob" "$tmp/got/other/sub/link" || fail "the file came back changed"
[ -x "$tmp/got/other/sub/blob" ] || fail "the mode is lost"
! "$RIG" get 1 /root/none "$tmp/got" 2>/dev/null || fail "a missing file was fetched"

# what changes here is seen there, and not the other way round
echo old >"$tmp/live"
[ "$(on 1 "cat $tmp/live")" = old ] || fail "the host's file is not seen"
echo new >"$tmp/live.new"
mv "$tmp/live.new" "$tmp/live"
[ "$(on 1 "cat $tmp/live")" = new ] || fail "a rebuilt file is not seen"
must 1 "echo guest >$tmp/live"
[ "$(cat "$tmp/live")" = new ] || fail "a guest changed the host's file"
