/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reply to "tune" (control.h): state, decisions, and orders to the tuner. Control threads.
 * Orders take effect from the next window on; with tuner=off a setting at once.
 */
#include "fs/node_tuner_internal.h"

#include "tuner/explain.h"

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
	return json_pack("{s:b, s:s}", "ok", 0, "error", text);
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

static json_t *tune_set(struct node *n, const json_t *wanted)
{
	struct tuner_settings s = tuner_settings_unpack(
		atomic_load_explicit(&n->tuning->in_force, memory_order_relaxed));
	unsigned mask = 0;
	json_t *no;

	for (int k = 0; k < TUNER_KNOBS; k++) {
		const json_t *v = json_object_get(wanted, tuner_knob_name((enum tuner_knob)k));

		if (!v)
			continue;
		no = find_level(n, (enum tuner_knob)k, json_integer_value(v), &s.level[k]);
		if (no)
			return no;
		mask |= 1U << k;
	}
	if (json_object_size(wanted) != (size_t)__builtin_popcount(mask))
		return refuse("a knob is one of lanes, poll_us, batch, reserve_mib");
	if (n->tuning->loop)
		tuner_loop_set_knobs(n->tuning->loop, mask, s);
	else
		node_tuner_apply(n, s);
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

static json_t *tune_record(struct tuner_loop *loop, const char *path)
{
	FILE *f;
	int fd;

	if (!*path) {
		tuner_loop_record(loop, NULL);
		return NULL;
	}
	if (*path != '/')
		return refuse("a recording needs a full path, not %s", path);
	if (on_fuse(path))
		return refuse("%s: a recording cannot lie on a FUSE mount; choose another place",
			      path);
	/* not a FIFO's other end: nothing here may wait */
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f) {
		json_t *no = refuse("cannot write %s: %s", path, strerror(errno));

		if (fd >= 0)
			close(fd);
		return no;
	}
	tuner_loop_record(loop, f);
	return NULL;
}

static json_t *tune_orders(struct node *n, const json_t *request)
{
	struct tuner_loop *loop = node_tuner_loop(n);
	const json_t *set = json_object_get(request, "set"), *freeze, *record;
	json_t *no = NULL;

	freeze = json_object_get(request, "freeze");
	record = json_object_get(request, "record");
	if (!loop && (freeze || record))
		return refuse("mounted with tuner=off: there is no tuner to freeze or record");
	if (freeze)
		tuner_loop_freeze(loop, json_is_true(freeze));
	if (set)
		no = tune_set(n, set);
	if (!no && record)
		no = tune_record(loop, json_string_value(record) ? json_string_value(record) : "");
	return no;
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
				    tuner_loop_explain(loop, explain < DECISION_LOG_MAX ?
							     (unsigned)explain : DECISION_LOG_MAX));
	return reply;
}
