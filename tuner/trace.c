/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a trace and deciding it anew; reading is in trace_read.c. */
#include "tuner/trace.h"

#include "tuner/explain.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

static int put_line(FILE *out, json_t *line)
{
	int err = line ? 0 : -ENOMEM;

	if (!err && json_dumpf(line, out, JSON_COMPACT | JSON_REAL_PRECISION(17)))
		err = -EIO;
	json_decref(line);
	if (!err && (fputc('\n', out) == EOF || fflush(out)))
		err = -EIO;
	return err;
}

static char *to_hex(const uint8_t *bytes, size_t len)
{
	static const char digits[] = "0123456789abcdef";
	char *text = malloc(2 * len + 1);

	for (size_t i = 0; text && i < len; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	if (text)
		text[2 * len] = 0;
	return text;
}

int tuner_trace_begin(FILE *out, const struct tuner_config *config, const void *model, size_t len)
{
	char *hex = model ? to_hex(model, len) : NULL;
	json_t *head;
	int err;

	if (model && !hex)
		return -ENOMEM;
	head = json_pack("{s:i, s:s, s:I, s:o, s:f, s:b}", "kvfs_tuner_trace", TUNER_SCHEMA,
			 "policy", config->policy->name, "seed", (json_int_t)config->seed,
			 "shipped", tuner_explain_settings(config->shipped),
			 "min_ops_per_s", config->min_ops_per_s, "forecast", config->forecast);
	if (head && hex)
		json_object_set_new(head, "model", json_string(hex));
	err = put_line(out, head);
	free(hex);
	return err;
}

static json_t *levels(const uint8_t *level)
{
	return json_pack("[i,i,i,i]", level[0], level[1], level[2], level[3]);
}

int tuner_trace_add(FILE *out, const struct tuner_window *w, const struct tuner_decision *d)
{
	json_t *line = tuner_explain_decision(d);

	if (!line)
		return -ENOMEM;
	/* What the decision followed from, exactly; the decision itself is for people and for
	 * comparing. */
	json_object_set_new(line, "seen", tuner_explain_features(&w->features));
	json_object_set_new(line, "flags", json_integer(w->flags));
	json_object_set_new(line, "lo", levels(w->bounds.lo));
	json_object_set_new(line, "hi", levels(w->bounds.hi));
	return put_line(out, line);
}

static int replay(FILE *in, struct tuner *t,
		  void (*on_window)(void *ctx, const struct tuner_decision *d), void *ctx,
		  uint64_t *ret_window)
{
	struct tuner_recorded r;
	struct tuner_decision d;
	int err;

	while ((err = tuner_trace_read(in, &r)) == 0) {
		struct tuner_settings after = tuner_step(t, &r.window, &d);

		if (on_window)
			on_window(ctx, &d);
		if (!tuner_settings_equal(after, r.after) || d.action != r.action) {
			*ret_window = r.window.index;
			return -EILSEQ;
		}
	}
	return err == -ENODATA ? 0 : err;
}

int tuner_trace_replay(FILE *in, void (*on_window)(void *ctx, const struct tuner_decision *d),
		       void *ctx, uint64_t *ret_window)
{
	struct tuner_config config;
	struct tuner *t;
	void *model;
	size_t len;
	int err = tuner_trace_read_head(in, &config, &model, &len);

	if (err)
		return err;
	err = tuner_create(&config, &t);
	if (err) {
		free(model);
		return err;
	}
	if (model)
		err = tuner_model_load(t, model, len);
	if (!err)
		err = replay(in, t, on_window, ctx, ret_window);
	free(model);
	tuner_destroy(t);
	return err;
}
