#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# Sourced by the tests of kvfs doctor and tune-host: a machine as a tree of files in $root.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"
root=$tmp/root
mkdir "$root"

# put PATH TEXT: a file of the fake machine
put()
{
	mkdir -p "$root/$(dirname "$1")"
	printf '%s\n' "$2" >"$root/$1"
}

# gone PATH...
gone()
{
	for doctor_path; do
		rm -rf "${root:?}/$doctor_path"
	done
}

# finds CHECK STATUS [TEXT]: kvfs doctor says that of the fake machine, text or remedy with TEXT in
# it.
finds()
{
	doctor_status=0
	"$KVFS" doctor --root "$root" >"$tmp/doctor" 2>"$tmp/err" || doctor_status=$?
	[ "$doctor_status" -le 1 ] || fail "kvfs doctor gave $doctor_status: $(cat "$tmp/err")"
	grep -A 1 -E "^$2 +$1 " "$tmp/doctor" >"$tmp/found" ||
		fail "not $2 for $1: $(cat "$tmp/doctor")"
	grep -qF -- "${3:-}" "$tmp/found" || fail "'$3' is not said of $1: $(cat "$tmp/found")"
	case $2 in
	fail) [ "$doctor_status" -eq 1 ] || fail "$1 failed and doctor gave 0" ;;
	esac
	case $2 in
	warn | fail) grep -q -- '->' "$tmp/found" || fail "no remedy for $1: $(cat "$tmp/found")" ;;
	esac
}

# limits MEMLOCK FILES: /proc/self/limits; and no capability
limits()
{
	limits_head="Limit                     Soft Limit           Hard Limit           Units"
	put proc/self/limits "$limits_head
Max open files            1024                 $2                 files
Max locked memory         65536                $1              bytes"
	put proc/self/status "Name:	kvfs
CapEff:	0000000000000000"
}

# rdma_port DEVICE STATE LINK-LAYER NETDEV MTU: a device with one port
rdma_port()
{
	put "sys/class/infiniband/$1/fw_ver" 20.31
	put "sys/class/infiniband/$1/ports/1/state" "$2"
	put "sys/class/infiniband/$1/ports/1/rate" "100 Gb/sec (4X EDR)"
	put "sys/class/infiniband/$1/ports/1/link_layer" "$3"
	put "sys/class/infiniband/$1/ports/1/gids/0" "fe80:0000:0000:0000:5054:00ff:fe12:3456"
	put "sys/class/infiniband/$1/ports/1/gids/1" "0000:0000:0000:0000:0000:ffff:0a00:0001"
	put "sys/class/infiniband/$1/ports/1/gids/2" "0000:0000:0000:0000:0000:0000:0000:0000"
	for doctor_i in 0 1; do
		put "sys/class/infiniband/$1/ports/1/gid_attrs/types/$doctor_i" "RoCE v2"
		put "sys/class/infiniband/$1/ports/1/gid_attrs/ndevs/$doctor_i" "$4"
	done
	put "sys/class/net/$4/mtu" "$5"
	put dev/infiniband/uverbs0 ""
	put dev/infiniband/rdma_cm ""
}
