/* SPDX-License-Identifier: Apache-2.0 */
/* kvfs status: what the running daemon says of itself, for people or as JSON. */
#include "fs/cmd/cmd.h"

#include "common/clock.h"
#include "common/diag.h"
#include "common/units.h"
#include "fs/admin/control.h"

#include <stdio.h>
#include <string.h>

#define STATUS_SECONDS 10
#define STATUS_DIGEST_SECONDS 600

static uint64_t status_u64(const json_t *j, const char *group, const char *key)
{
	const json_t *g = group ? json_object_get(j, group) : j;

	return (uint64_t)json_integer_value(json_object_get(g, key));
}

static const char *status_str(const json_t *j, const char *group, const char *key)
{
	const json_t *g = group ? json_object_get(j, group) : j;
	const char *text = json_string_value(json_object_get(g, key));

	return text ? text : "";
}

static bool status_bool(const json_t *j, const char *group, const char *key)
{
	return json_is_true(json_object_get(group ? json_object_get(j, group) : j, key));
}

/* Of a moment since 1970; the daemon's clock is ours. */
static uint64_t status_age_s(uint64_t then_ns)
{
	uint64_t now_ns = clock_real_ns();

	return now_ns > then_ns ? (now_ns - then_ns) / NSEC_PER_SEC : 0;
}

static void status_print_top(const json_t *j)
{
	const char *label = status_str(j, "volume", "label"),
		   *mountpoint = status_str(j, NULL, "mountpoint");
	const char *metrics = status_str(j, NULL, "metrics");

	printf("volume      %s  %s%s%s\n", status_str(j, "volume", "path"),
	       status_str(j, "volume", "uuid"), label[0] ? "  " : "", label);
	printf("node        %s\n", status_str(j, "volume", "node_id"));
	printf("role        %s, pid %llu%s%s\n", status_str(j, NULL, "role"),
	       (unsigned long long)status_u64(j, NULL, "pid"), mountpoint[0] ? ", mounted on " : "",
	       mountpoint);
	printf("metrics     %s%s%s\n", metrics[0] ? "http://" : "off", metrics,
	       metrics[0] ? "/metrics" : "");
	if (status_u64(j, "requests", "rings"))
		printf("requests    over io_uring, %llu rings\n",
		       (unsigned long long)status_u64(j, "requests", "rings"));
	else if (mountpoint[0])
		printf("requests    over /dev/fuse; io_uring: %s\n",
		       status_str(j, "requests", "no_rings_because"));
	printf("position    epoch %llu.%llu, LSN %llu\n",
	       (unsigned long long)status_u64(j, NULL, "epoch"),
	       (unsigned long long)status_u64(j, NULL, "epoch_start"),
	       (unsigned long long)status_u64(j, NULL, "lsn"));
}

/* With RDMA only. */
static void status_print_registered(const json_t *j)
{
	const char *error = status_str(j, "memory", "register_error");
	const char *remedy = status_str(j, "memory", "register_remedy");
	uint64_t bytes = status_u64(j, "memory", "registered_bytes");
	char a[UNITS_TEXT_BYTES];

	if (bytes == 0 && !error[0])
		return;
	printf("registered  %s; values sent: %llu from there, %llu copied\n",
	       units_format_size(bytes, a),
	       (unsigned long long)status_u64(j, "memory", "mr_hits"),
	       (unsigned long long)status_u64(j, "memory", "mr_misses"));
	if (error[0])
		printf("            the RDMA device refused more (%s)%s%s\n", error,
		       remedy[0] ? ": " : "", remedy);
}

static void status_print_store(const json_t *j)
{
	char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
	uint64_t hits = status_u64(j, "memory", "region_hits"),
		 misses = status_u64(j, "memory", "region_misses");

	/* a key with holes has a size far beyond what it takes */
	printf("keys        %llu names, %llu inodes, %s used by values, %s by their sizes\n",
	       (unsigned long long)status_u64(j, "store", "names"),
	       (unsigned long long)status_u64(j, "store", "inodes"),
	       units_format_size(status_u64(j, "memory", "value_used_bytes"), a),
	       units_format_size(status_u64(j, "store", "value_bytes"), b));
	printf("arena       %s of %s taken; regions: %llu hits, %llu misses\n",
	       units_format_size(status_u64(j, "memory", "region_used_bytes"), a),
	       units_format_size(status_u64(j, "memory", "arena_bytes"), b),
	       (unsigned long long)hits, (unsigned long long)misses);
	status_print_registered(j);
	printf("log         %s of %s used, pool %llu active, %s\n",
	       units_format_size(status_u64(j, "log", "used_bytes"), a),
	       units_format_size(status_u64(j, "log", "capacity_bytes"), b),
	       (unsigned long long)status_u64(j, "log", "active_pool"),
	       status_bool(j, "volume", "pmem") ? "persistent memory" : "ordinary file");
}

static void status_print_ckpt(const json_t *j)
{
	char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];

	printf("checkpoint  LSN %llu, %llu made, the last wrote %s in %llu ms",
	       (unsigned long long)status_u64(j, "checkpoint", "lsn"),
	       (unsigned long long)status_u64(j, "checkpoint", "count"),
	       units_format_size(status_u64(j, "checkpoint", "written_bytes"), a),
	       (unsigned long long)status_u64(j, "checkpoint", "duration_ns") / 1000000);
	if (status_bool(j, "checkpoint", "running"))
		printf("; running: %s of %s",
		       units_format_size(status_u64(j, "checkpoint", "done_bytes"), a),
		       units_format_size(status_u64(j, "checkpoint", "planned_bytes"), b));
	if (status_u64(j, "checkpoint", "last_error"))
		printf("; the last failed: %s",
		       strerror(-(int)status_u64(j, "checkpoint", "last_error")));
	printf("\n");
}

/* Behind separator: how far a resync is, of a link or of a mirror. */
static void status_print_resync(const json_t *j, const char *separator)
{
	uint64_t done = status_u64(j, NULL, "resync_done_bytes");
	uint64_t total = status_u64(j, NULL, "resync_total_bytes");
	uint64_t rate = status_u64(j, NULL, "resync_rate_bytes");
	char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES];

	units_format_size(total, b);
	if (total && done == total) {
		units_format_size(status_u64(j, NULL, "resync_installed_bytes"), a);
		printf("%sresync: installed %s of %s", separator, a, b);
		return;
	}
	printf("%sresync %s of %s", separator, units_format_size(done, a), b);
	if (rate)
		printf(" at %s/s", units_format_size(rate, c));
}

static void status_print_mtu(const json_t *j)
{
	if (status_u64(j, NULL, "mtu_bytes"))
		printf(", MTU %llu", (unsigned long long)status_u64(j, NULL, "mtu_bytes"));
	if (status_str(j, NULL, "mtu_note")[0])
		printf(" (%s)", status_str(j, NULL, "mtu_note"));
}

static void status_print_link(const json_t *l)
{
	char a[UNITS_TEXT_BYTES];

	printf("mirror      %s  %s%s%s, %llu of %llu lanes used, acked LSN %llu, lag %llu records "
	       "(%s)",
	       status_str(l, NULL, "addr"), status_str(l, NULL, "state"),
	       status_str(l, NULL, "transport")[0] ? " over " : "",
	       status_str(l, NULL, "transport"),
	       (unsigned long long)status_u64(l, NULL, "lanes_active"),
	       (unsigned long long)status_u64(l, NULL, "lanes"),
	       (unsigned long long)status_u64(l, NULL, "acked_lsn"),
	       (unsigned long long)status_u64(l, NULL, "lag_records"),
	       units_format_size(status_u64(l, NULL, "lag_bytes"), a));
	status_print_mtu(l);
	if (strcmp(status_str(l, NULL, "state"), "resync") == 0)
		status_print_resync(l, ", ");
	if (json_is_object(json_object_get(l, "load")))
		printf(", its CPU %.0f %%, log %.0f %% full",
		       100 * json_number_value(json_object_get(json_object_get(l, "load"), "cpu")),
		       100 * json_number_value(json_object_get(json_object_get(l, "load"), "log")));
	if (status_u64(l, NULL, "held_from_lsn"))
		printf(", the log is held for it from LSN %llu",
		       (unsigned long long)status_u64(l, NULL, "held_from_lsn"));
	if (status_u64(l, NULL, "pace_bytes"))
		printf(", writers slowed to %s/s for it",
		       units_format_size(status_u64(l, NULL, "pace_bytes"), a));
	if (status_str(l, NULL, "last_error")[0] &&
	    strcmp(status_str(l, NULL, "state"), "live") != 0)
		printf(", last error: %s", status_str(l, NULL, "last_error"));
	if (status_u64(l, NULL, "ended_ns"))
		printf(", last session ended %llu s ago: %s",
		       (unsigned long long)status_age_s(status_u64(l, NULL, "ended_ns")),
		       status_str(l, NULL, "ended_why"));
	printf("\n");
}

static void status_print_primary(const json_t *j)
{
	const json_t *links = json_object_get(j, "mirrors"), *l;
	size_t i;

	printf("commit      protocol %s, commit point %llu, %llu records in %llu appends, %llu of "
	       "%llu mirrors in sync "
	       "(%llu needed)%s\n",
	       status_str(j, "commit", "protocol"),
	       (unsigned long long)status_u64(j, "commit", "commit_point"),
	       (unsigned long long)status_u64(j, "commit", "appended_records"),
	       (unsigned long long)status_u64(j, "commit", "appends"),
	       (unsigned long long)status_u64(j, "commit", "in_sync"),
	       (unsigned long long)json_array_size(links),
	       (unsigned long long)status_u64(j, "commit", "min_mirrors"),
	       status_bool(j, "commit", "failed") ? "; FAILED: no write is accepted"
	       : status_bool(j, "commit", "read_only") ? "; READ-ONLY until they are" : "");
	json_array_foreach(links, i, l)
		status_print_link(l);
	if (json_array_size(links))
		cmd_tune_print(json_object_get(j, "tuner"));
}

static void status_print_mirror(const json_t *j)
{
	const json_t *m = json_object_get(j, "mirror");

	if (status_bool(m, NULL, "connected"))
		printf("primary     %s over %s, %llu lanes", status_str(m, NULL, "primary"),
		       status_str(m, NULL, "transport"),
		       (unsigned long long)status_u64(m, NULL, "lanes"));
	else
		printf("primary     not connected");
	status_print_mtu(m);
	printf(", %s", status_bool(m, NULL, "in_sync") ? "in sync" : "not in sync");
	printf("; received LSN %llu, durable %llu, applied %llu",
	       (unsigned long long)status_u64(m, NULL, "received_lsn"),
	       (unsigned long long)status_u64(m, NULL, "durable_lsn"),
	       (unsigned long long)status_u64(m, NULL, "applied_lsn"));
	if (status_bool(m, NULL, "resyncing"))
		status_print_resync(m, "; ");
	if (status_str(m, NULL, "last_error")[0])
		printf("; last error: %s", status_str(m, NULL, "last_error"));
	printf("%s\n", status_bool(m, NULL, "failed") ? "; FAILED" : "");
}

static void status_print(const json_t *j)
{
	status_print_top(j);
	status_print_store(j);
	status_print_ckpt(j);
	if (json_object_get(j, "commit"))
		status_print_primary(j);
	if (json_object_get(j, "mirror"))
		status_print_mirror(j);
	if (json_object_get(j, "digest"))
		printf("digest      %s\n", status_str(j, NULL, "digest"));
}

/* What is served takes no write any more, or, a mirror, no record. */
static bool status_failed(const json_t *j)
{
	return status_bool(j, "commit", "failed") || status_bool(j, "mirror", "failed");
}

static int status_ask(const char *where, bool as_json, bool digest)
{
	json_t *request = json_pack("{s:s, s:b}", "cmd", "status", "digest", digest), *reply = NULL;
	const char *error;
	char why[512];
	int err = control_call(where, request, digest ? STATUS_DIGEST_SECONDS : STATUS_SECONDS,
			       &reply, NULL, why, sizeof(why));

	json_decref(request);
	if (err) {
		diag_error("%s", why);
		return CMD_FAILED;
	}
	error = json_string_value(json_object_get(reply, "error"));
	if (error) {
		diag_error("%s", error);
	} else if (as_json) {
		json_object_del(reply, "ok");
		json_dumpf(reply, stdout, JSON_INDENT(2));
		printf("\n");
	} else {
		status_print(reply);
	}
	if (!error && status_failed(reply)) {
		error = status_str(reply, "mirror", "last_error");
		diag_error("%s: it has failed%s%s", where, error[0] ? ": " : "", error);
	}
	err = error ? CMD_FAILED : CMD_OK;
	json_decref(reply);
	return err;
}

int cmd_status(int argc, char **argv)
{
	const char *where = NULL;
	bool as_json = false, digest = false, wrong = false;
	int i;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
			printf("usage: kvfs status [--json] [--digest] WHERE\n\n"
			       "Shows the state of what is served at WHERE, a volume or a mount "
			       "point.\n\n"
			       "  --json    as one JSON object\n"
			       "  --digest  with a digest of everything users can see but access "
			       "times:\n"
			       "            equal on nodes with equal state; it reads the whole "
			       "store, and is\n"
			       "            meant for a quiet volume\n");
			return CMD_OK;
		}
		if (strcmp(argv[i], "--json") == 0)
			as_json = true;
		else if (strcmp(argv[i], "--digest") == 0)
			digest = true;
		else if (argv[i][0] == '-' || where)
			wrong = true;
		else
			where = argv[i];
	}
	if (wrong || !where) {
		diag_error("usage: kvfs status [--json] [--digest] WHERE");
		return CMD_USAGE;
	}
	return status_ask(where, as_json, digest);
}
