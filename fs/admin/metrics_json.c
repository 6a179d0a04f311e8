/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots as JSON: see metrics_json.h. Pure. */
#include "fs/admin/metrics_json.h"

#include "common/json_text.h"

#define JI(v) ((json_int_t)(v))

static json_t *json_buckets(const struct metrics_sample *s)
{
	unsigned n = metrics_bucket_count(s->def);
	json_t *list = json_array();

	for (unsigned i = 0; list && i < n; i++) {
		if (!s->buckets[i])
			continue;
		json_array_append_new(
			list,
			json_pack("[I, I]", i + 1 < n ? JI(metrics_bucket_max(s->def, i)) : JI(-1),
				  JI(s->buckets[i])));
	}
	return list;
}

static json_t *json_sample(const struct metrics_sample *s)
{
	json_t *values = json_array(), *j;

	for (unsigned i = 0; i < s->label_count; i++)
		json_array_append_new(values, json_text(s->values[i]));
	j = json_pack("{s:s, s:o, s:o}", "name", s->def->name, "labels", json_text(s->labels),
		      "values", values);
	if (s->def->kind == METRICS_HISTOGRAM) {
		json_object_set_new(j, "count", json_integer(JI(s->count)));
		json_object_set_new(j, "sum", json_integer(JI(s->sum)));
		json_object_set_new(j, "buckets", json_buckets(s));
	} else {
		json_object_set_new(j, "value",
				    s->is_real ? json_real(s->real) : json_integer(JI(s->value)));
	}
	return j;
}

json_t *metrics_json(const struct metrics_snapshot *snap)
{
	json_t *list = json_array();

	for (unsigned i = 0; list && i < snap->count; i++)
		json_array_append_new(list, json_sample(&snap->samples[i]));
	return list;
}
