#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sqlite3 with a write-ahead log and with a delete journal, two writers at once, and a kill -9 in
# between.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need sqlite3
one_mount 64M
check='PRAGMA integrity_check; SELECT count(*) FROM t;'
insert()
{
	for n in $(seq "$2" "$3"); do
		echo "BEGIN IMMEDIATE;" \
			"INSERT INTO t(a, b) VALUES ($n, hex(randomblob(300))); COMMIT;"
	done | sqlite3 -cmd '.timeout 30000' "$1"
}

for mode in wal delete; do
	db=$mnt/$mode.db
	table="CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)"
	[ "$(sqlite3 "$db" "PRAGMA journal_mode=$mode; $table;")" = $mode ] ||
		fail "journal mode $mode is not taken"
	insert "$db" 1 200 &
	first=$!
	insert "$db" 201 400
	wait $first
	[ "$(sqlite3 "$db" "$check" | tr '\n' ' ')" = "ok 400 " ] ||
		fail "$mode: the table is not whole"
	sqlite3 "$db" 'DELETE FROM t WHERE a % 2; VACUUM;'
done
crash_mount
for mode in wal delete; do
	[ "$(sqlite3 "$mnt/$mode.db" "$check" | tr '\n' ' ')" = "ok 200 " ] ||
		fail "$mode: the table is not whole after the crash"
done
