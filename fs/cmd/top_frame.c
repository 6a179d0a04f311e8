/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Differences of two metric snapshots as people read them (top.h):
 *
 *   {"interval_seconds", "role", "version", "cpu_percent", "in_flight", "degraded", "failed",
 *    "bytes_per_second": {"read", "write"},
 *    "operations": [{"op", "per_second", "mean_us", "p50_us", "p99_us"}],      those that happened
 *    "stages":     [{"stage", ...the same}], "commit_wait": {...the same},
 *    "mirrors":    [{"mirror", "state", "lag_records", "lag_bytes", "lanes", "bytes_per_second",
 *                    "retries_per_second", "latency": {...}}],
 *    "replica":    {"connected", "received_lsn", "applied_lsn", "records_per_second",
 * "bytes_per_second"}, "log", "checkpoint", "memory", "classes", "tuner"}
 */
#include "fs/cmd/top.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct top_pair {
	const json_t *before, *after; /* the metric arrays */
	double seconds;
};

/* The series of that name whose first label is label (NULL: any). NULL: none. */
static const json_t *top_find(const json_t *metrics, const char *name, const char *label)
{
	const json_t *m;
	size_t i;

	json_array_foreach (metrics, i, m) {
		const char *first =
			json_string_value(json_array_get(json_object_get(m, "values"), 0));

		if (strcmp(json_string_value(json_object_get(m, "name")), name) == 0 &&
		    (!label || (first && strcmp(first, label) == 0)))
			return m;
	}
	return NULL;
}

static double top_value(const json_t *metrics, const char *name, const char *label)
{
	return json_number_value(json_object_get(top_find(metrics, name, label), "value"));
}

static json_t *top_now(const struct top_pair *p, const char *name, const char *label)
{
	const json_t *value = json_object_get(top_find(p->after, name, label), "value");

	return json_is_real(value) ? json_real(json_real_value(value))
				   : json_integer(json_integer_value(value));
}

static double top_rate_value(const struct top_pair *p, const char *name, const char *label)
{
	double d = top_value(p->after, name, label) - top_value(p->before, name, label);

	return d > 0 ? d / p->seconds : 0;
}

static json_t *top_rate(const struct top_pair *p, const char *name, const char *label)
{
	return json_real(top_rate_value(p, name, label));
}

/* How many values of bucket bound there were before. */
static json_int_t top_bucket_before(const json_t *histogram, json_int_t bound)
{
	const json_t *b;
	size_t i;

	json_array_foreach (json_object_get(histogram, "buckets"), i, b)
		if (json_integer_value(json_array_get(b, 0)) == bound)
			return json_integer_value(json_array_get(b, 1));
	return 0;
}

/* The upper end of the bucket where the share q of the interval's count values lies, in
 * microseconds. */
static double top_quantile(const json_t *before, const json_t *after, json_int_t count, double q)
{
	double seen = 0, top = 0;
	const json_t *b;
	size_t i;

	json_array_foreach (json_object_get(after, "buckets"), i, b) {
		json_int_t bound = json_integer_value(json_array_get(b, 0));

		if (bound >= 0)
			top = (double)bound / 1e3;
		seen += (double)(json_integer_value(json_array_get(b, 1)) -
				 top_bucket_before(before, bound));
		if (seen >= q * (double)count)
			break;
	}
	return top;
}

/* Adds what a histogram saw in the interval. before may be NULL. */
static json_t *top_add_histogram(json_t *j, const struct top_pair *p, const json_t *before,
				 const json_t *after)
{
	json_int_t count = json_integer_value(json_object_get(after, "count")) -
			   json_integer_value(json_object_get(before, "count"));
	json_int_t sum = json_integer_value(json_object_get(after, "sum")) -
			 json_integer_value(json_object_get(before, "sum"));

	json_object_set_new(j, "per_second", json_real((double)count / p->seconds));
	json_object_set_new(j, "mean_us",
			    json_real(count > 0 ? (double)sum / (double)count / 1e3 : 0));
	json_object_set_new(j, "p50_us",
			    json_real(count > 0 ? top_quantile(before, after, count, 0.5) : 0));
	json_object_set_new(j, "p99_us",
			    json_real(count > 0 ? top_quantile(before, after, count, 0.99) : 0));
	return j;
}

/* One object for each series of a family that saw something (or for each, with idle). */
static json_t *top_histograms(const struct top_pair *p, const char *name, const char *key,
			      bool idle)
{
	json_t *list = json_array();
	const json_t *m;
	size_t i;

	json_array_foreach (p->after, i, m) {
		const char *label =
			json_string_value(json_array_get(json_object_get(m, "values"), 0));
		json_t *j;

		if (!label || strcmp(json_string_value(json_object_get(m, "name")), name) != 0)
			continue;
		j = top_add_histogram(json_pack("{s:s}", key, label), p,
				      top_find(p->before, name, label), m);
		if (idle || json_real_value(json_object_get(j, "per_second")) > 0)
			json_array_append_new(list, j);
		else
			json_decref(j);
	}
	return list;
}

static const char *top_mirror_state(const struct top_pair *p, const char *mirror)
{
	const json_t *m;
	size_t i;

	json_array_foreach (p->after, i, m) {
		const json_t *values = json_object_get(m, "values");

		if (strcmp(json_string_value(json_object_get(m, "name")), "kvfs_mirror_state") ==
			    0 &&
		    strcmp(json_string_value(json_array_get(values, 0)), mirror) == 0 &&
		    json_integer_value(json_object_get(m, "value")) == 1)
			return json_string_value(json_array_get(values, 1));
	}
	return "unknown";
}

/* The series with the same labels before; NULL: it is new. */
static const json_t *top_before(const struct top_pair *p, const json_t *series)
{
	const json_t *m;
	size_t i;

	json_array_foreach (p->before, i, m)
		if (json_equal(json_object_get(m, "name"), json_object_get(series, "name")) &&
		    json_equal(json_object_get(m, "values"), json_object_get(series, "values")))
			return m;
	return NULL;
}

/* A mirror has one for each transport it was ever reached by: the one that saw most. */
static json_t *top_latency(const struct top_pair *p, const char *mirror)
{
	const json_t *m, *found = NULL;
	json_int_t most = -1;
	size_t i;

	json_array_foreach (p->after, i, m) {
		const char *first =
			json_string_value(json_array_get(json_object_get(m, "values"), 0));
		json_int_t count = json_integer_value(json_object_get(m, "count")) -
				   json_integer_value(json_object_get(top_before(p, m), "count"));

		if (first && strcmp(first, mirror) == 0 && count > most &&
		    strcmp(json_string_value(json_object_get(m, "name")), "rdma_write_latency") ==
			    0) {
			most = count;
			found = m;
		}
	}
	return top_add_histogram(json_object(), p, found ? top_before(p, found) : NULL, found);
}

static json_t *top_mirror(const struct top_pair *p, const char *mirror)
{
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "mirror", mirror, "state",
			 top_mirror_state(p, mirror), "lag_records",
			 top_now(p, "kvfs_mirror_lag_records", mirror), "lag_bytes",
			 top_now(p, "kvfs_mirror_lag_bytes", mirror), "lanes",
			 top_now(p, "kvfs_mirror_lanes", mirror), "bytes_per_second",
			 top_rate(p, "kvfs_mirror_sent_bytes_total", mirror), "retries_per_second",
			 top_rate(p, "qp_retry_count", mirror), "latency", top_latency(p, mirror));
}

static json_t *top_mirrors(const struct top_pair *p)
{
	json_t *list = json_array();
	const json_t *m;
	size_t i;

	json_array_foreach (p->after, i, m)
		if (strcmp(json_string_value(json_object_get(m, "name")), "kvfs_mirror_live") == 0)
			json_array_append_new(
				list, top_mirror(p, json_string_value(json_array_get(
							    json_object_get(m, "values"), 0))));
	return list;
}

static json_t *top_replica(const struct top_pair *p)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "connected",
			 top_now(p, "kvfs_replica_connected", NULL), "received_lsn",
			 top_now(p, "kvfs_replica_received_lsn", NULL), "applied_lsn",
			 top_now(p, "kvfs_replica_applied_lsn", NULL), "records_per_second",
			 top_rate(p, "kvfs_replica_records_total", NULL), "bytes_per_second",
			 top_rate(p, "kvfs_replica_bytes_total", NULL));
}

static json_t *top_classes(const struct top_pair *p)
{
	json_t *list = json_array();
	const json_t *m;
	size_t i;

	json_array_foreach (p->after, i, m) {
		const char *class =
			json_string_value(json_array_get(json_object_get(m, "values"), 0));

		if (strcmp(json_string_value(json_object_get(m, "name")), "kvfs_slab_slots") != 0 ||
		    json_integer_value(json_object_get(m, "value")) == 0)
			continue;
		json_array_append_new(
			list, json_pack("{s:s, s:o, s:o, s:o}", "class", class, "slots",
					top_now(p, "kvfs_slab_slots", class), "used_slots",
					top_now(p, "kvfs_slab_used_slots", class), "used_bytes",
					top_now(p, "kvfs_slab_used_bytes", class)));
	}
	return list;
}

static json_t *top_tuner(const struct top_pair *p)
{
	json_t *settings = json_object();
	const json_t *m;
	size_t i;

	json_array_foreach (p->after, i, m)
		if (strcmp(json_string_value(json_object_get(m, "name")), "kvfs_tuner_setting") ==
		    0)
			json_object_set(
				settings,
				json_string_value(json_array_get(json_object_get(m, "values"), 0)),
				json_object_get(m, "value"));
	return json_pack("{s:o, s:o, s:o, s:o}", "active", top_now(p, "kvfs_tuner_active", NULL),
			 "settings", settings, "reward", top_now(p, "kvfs_tuner_reward", NULL),
			 "regret", top_now(p, "kvfs_tuner_regret", NULL));
}

static json_t *top_storage(const struct top_pair *p)
{
	/* a mirror logs what it receives */
	const char *appended = top_find(p->after, "kvfs_log_appended_bytes_total", NULL) ?
				       "kvfs_log_appended_bytes_total" :
				       "kvfs_replica_bytes_total";

	return json_pack("{s:{s:o, s:o, s:o}, s:{s:o, s:o, s:o, s:o}, s:{s:o, s:o, s:o, s:o}}",
			 "log", "used_bytes", top_now(p, "kvfs_log_used_bytes", NULL),
			 "capacity_bytes", top_now(p, "kvfs_log_capacity_bytes", NULL),
			 "bytes_per_second", top_rate(p, appended, NULL),
			 "checkpoint", "running", top_now(p, "kvfs_checkpoint_running", NULL),
			 "count", top_now(p, "kvfs_checkpoints_total", NULL), "last_written_bytes",
			 top_now(p, "kvfs_checkpoint_last_written_bytes", NULL), "last_duration_ns",
			 top_now(p, "kvfs_checkpoint_last_duration_seconds", NULL), "memory",
			 "arena_bytes", top_now(p, "kvfs_arena_bytes", NULL), "used_bytes",
			 top_now(p, "kvfs_region_used_bytes", NULL), "hit_rate",
			 top_now(p, "mr_cache_hit_rate", NULL), "resident_bytes",
			 top_now(p, "process_resident_memory_bytes", NULL));
}

static json_t *top_build(const struct top_pair *p)
{
	const json_t *build =
		json_object_get(top_find(p->after, "kvfs_build_info", NULL), "values");
	const char *version = json_string_value(json_array_get(build, 0));
	const char *role = json_string_value(json_array_get(build, 1));
	bool primary = role && strcmp(role, "primary") == 0;
	json_t *j = json_pack(
		"{s:f, s:s, s:s, s:f, s:o, s:o, s:{s:o, s:o}, s:o, s:o}", "interval_seconds",
		p->seconds, "role", role ? role : "", "version", version ? version : "",
		"cpu_percent", top_rate_value(p, "process_cpu_seconds_total", NULL) / 1e7,
		"in_flight", top_now(p, "kvfs_operations_in_flight", NULL), "failed",
		top_now(p, "kvfs_failed", NULL), "bytes_per_second", "read",
		top_rate(p, "kvfs_operation_bytes_total", "read"), "write",
		top_rate(p, "kvfs_operation_bytes_total", "write"), "operations",
		top_histograms(p, "kvfs_operation_duration_seconds", "op", false), "stages",
		top_histograms(p, "kvfs_stage_duration_seconds", "stage", true));
	const char *wait = "kvfs_commit_wait_seconds";

	if (!j)
		return NULL;
	if (primary) {
		json_object_set_new(j, "degraded", top_now(p, "kvfs_degraded", NULL));
		json_object_set_new(j, "mirrors", top_mirrors(p));
		json_object_set_new(j, "commit_wait",
				    top_add_histogram(json_object(), p,
						      top_find(p->before, wait, NULL),
						      top_find(p->after, wait, NULL)));
	} else {
		json_object_set_new(j, "replica", top_replica(p));
	}
	json_object_update_new(j, top_storage(p));
	json_object_set_new(j, "classes", top_classes(p));
	json_object_set_new(j, "tuner", top_tuner(p));
	return j;
}

json_t *top_frame(const json_t *before, const json_t *after)
{
	struct top_pair p = {
		.before = json_object_get(before, "metrics"),
		.after = json_object_get(after, "metrics"),
		.seconds = (double)(json_integer_value(json_object_get(after, "time_ns")) -
				    json_integer_value(json_object_get(before, "time_ns"))) /
			   1e9,
	};

	if (!json_is_array(p.before) || !json_is_array(p.after) || p.seconds <= 0)
		return NULL;
	return top_build(&p);
}
