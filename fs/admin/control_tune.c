/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reply to "tune" (control.h): state, decisions, and orders to the tuner. Control threads.
 * Orders take effect from the next window on; with tuner=off a setting at once.
 */
#include "fs/node/node_tuner_internal.h"

#include "common/json_text.h"
#include "tuner/explain.h"
#include "tuner/trace_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

__attribute__((format(printf, 1, 2)))
static json_t *refuse(const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return json_pack("{s:b, s:o}", "ok", 0, "error", json_text(text));
}

static uint32_t value_at(const struct node *n, enum tuner_knob knob, unsigned level)
{
	struct tuner_settings s = node_tuner_static(n);
	struct node_knobs k;

	s.level[knob] = (uint8_t)level;
	k = node_tuner_values(n, s);
	switch (knob) {
	case TUNER_KNOB_LANES:
		return k.links.lanes;
	case TUNER_KNOB_POLL:
		return k.links.poll_us;
	case TUNER_KNOB_BATCH:
		return k.links.batch;
	default:
		return (uint32_t)(k.reserve_bytes >> 20);
	}
}

/* The level of a value. Refused with what there is: the reply, else NULL. */
static json_t *find_level(struct node *n, enum tuner_knob knob, json_int_t value,
			  uint8_t *ret_level)
{
	struct tuner_bounds b;
	char list[128] = "";
	size_t len = 0;

	node_tuner_bounds(n, &b);
	for (unsigned i = b.lo[knob]; i <= b.hi[knob]; i++) {
		if ((json_int_t)value_at(n, knob, i) == value) {
			*ret_level = (uint8_t)i;
			return NULL;
		}
		len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%u",
					len ? ", " : "", value_at(n, knob, i));
	}
	return refuse("%s may be %s here, not %lld", tuner_knob_name(knob), list, (long long)value);
}

/* Of what is wanted, the levels and which knobs they are of. Refused: the reply, else NULL. */
static json_t *tune_levels(struct node *n, const json_t *wanted, struct tuner_settings *s,
			   unsigned *ret_mask)
{
	unsigned mask = 0;
	json_t *no;

	for (int k = 0; k < TUNER_KNOBS; k++) {
		const json_t *v = json_object_get(wanted, tuner_knob_name((enum tuner_knob)k));

		if (!v)
			continue;
		no = find_level(n, (enum tuner_knob)k, json_integer_value(v), &s->level[k]);
		if (no)
			return no;
		mask |= 1U << k;
	}
	if (json_object_size(wanted) != (size_t)__builtin_popcount(mask))
		return refuse("a knob is one of lanes, poll_us, batch, reserve_mib");
	*ret_mask = mask;
	return NULL;
}

/* Whether a file would lie on a FUSE file system: on our own mount the recording would be part of
 * the load it records, and keep the mount in use. */
static bool on_fuse(const char *path)
{
	char dir[PATH_MAX];
	struct statfs fs;
	size_t len = (size_t)(strrchr(path, '/') - path);

	if (len >= sizeof(dir))
		return false;
	memcpy(dir, path, len);
	dir[len] = '\0';
	return statfs(len ? dir : "/", &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC;
}

/* A new file: nothing that is there is touched, it might be the volume's, or a recording under way.
 * kv-trace: the file system may hang. -EREMOTE: a FUSE mount. */
static int tune_create(const char *path)
{
	int fd;

	if (on_fuse(path))
		return -EREMOTE;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

/* Opens a new file for a recording; *ret_f stays NULL for one that is to end. */
static json_t *tune_open(const char *path, FILE **ret_f)
{
	int err;

	if (!*path)
		return NULL;
	if (*path != '/')
		return refuse("a recording needs a full path, not %s", path);
	err = trace_writer_open(tune_create, path, TRACE_WRITER_QUEUE_BYTES, TRACE_WRITER_WAIT_NS,
				ret_f);
	if (err == -EREMOTE)
		return refuse("%s: a recording cannot lie on a FUSE mount; choose another place",
			      path);
	if (err == -ETIMEDOUT)
		return refuse("%s: its file system does not answer; choose another place", path);
	return err ? refuse("cannot make %s: %s", path, strerror(-err)) : NULL;
}

/* All that is asked for is looked at before any of it is done. */
static json_t *tune_orders(struct node *n, const json_t *request)
{
	const json_t *set = json_object_get(request, "set"), *freeze, *record;
	struct tuner_settings s = tuner_settings_unpack(
		atomic_load_explicit(&n->tuning->in_force, memory_order_relaxed));
	struct tuner_loop *loop = node_tuner_loop(n);
	json_t *no = NULL;
	unsigned mask = 0;
	FILE *f = NULL;

	freeze = json_object_get(request, "freeze");
	record = json_object_get(request, "record");
	if (!loop && (freeze || record))
		return refuse("mounted with tuner=off: there is no tuner to freeze or record");
	if (set)
		no = tune_levels(n, set, &s, &mask);
	if (!no && record)
		no = tune_open(json_string_value(record) ? json_string_value(record) : "", &f);
	if (no)
		return no;
	if (freeze)
		tuner_loop_freeze(loop, json_is_true(freeze));
	if (mask && loop)
		tuner_loop_set_knobs(loop, mask, s);
	else if (mask)
		node_tuner_apply(n, s);
	if (record)
		tuner_loop_record(loop, f);
	return NULL;
}

/* A decision names ladder values; where the option's own value stands in a level's place, that. */
static void explain_real(const struct node *n, json_t *settings)
{
	for (int k = 0; k < TUNER_KNOBS; k++) {
		const char *name = tuner_knob_name((enum tuner_knob)k);
		const json_t *v = json_object_get(settings, name);
		uint8_t level;

		if (!json_is_integer(v))
			continue;
		level = tuner_knob_level((enum tuner_knob)k, (uint32_t)json_integer_value(v));
		json_object_set_new(settings, name,
				    json_integer(value_at(n, (enum tuner_knob)k, level)));
	}
}

static json_t *explain_decisions(const struct node *n, struct tuner_loop *loop, unsigned count)
{
	static const char *const settings[] = { "before", "after", "choice" };
	json_t *list = tuner_loop_explain(loop, count), *d, *c;
	size_t i, j;

	json_array_foreach(list, i, d) {
		for (j = 0; j < sizeof(settings) / sizeof(settings[0]); j++)
			explain_real(n, json_object_get(d, settings[j]));
		json_array_foreach(json_object_get(d, "candidates"), j, c)
			explain_real(n, c);
	}
	return list;
}

json_t *control_tune(struct node *n, const json_t *request)
{
	json_int_t explain = json_integer_value(json_object_get(request, "explain"));
	struct tuner_loop *loop = node_tuner_loop(n);
	json_t *reply;

	if (!n->commit)
		return refuse("a mirror has no tuner: ask the primary");
	if (!n->tuning)
		return refuse("there are no mirrors: nothing to tune");
	reply = tune_orders(n, request);
	if (reply)
		return reply;
	reply = json_pack("{s:b, s:o}", "ok", 1, "tuner", node_tuner_json(n));
	if (explain > 0 && loop)
		json_object_set_new(reply, "decisions",
				    explain_decisions(n, loop,
						      explain < DECISION_LOG_MAX
							  ? (unsigned)explain
							  : DECISION_LOG_MAX));
	return reply;
}
