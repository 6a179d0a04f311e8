/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a trace; nothing in it is believed, and it takes bounded memory whatever it is. */
#include "tuner/trace.h"

#include "tuner/model_file.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a trace begins with; the file may be anything, and endless. */
static const char begin[] = "{\"kvfs_tuner_trace\"";
/* The head has the model in hexadecimal digits. */
#define HEAD_BYTES_MAX (2 * (size_t)MODEL_FILE_BYTES_MAX + 4096)
#define WINDOW_BYTES_MAX ((size_t)1 << 20)

/* Up to a newline or the end. -EINVAL: more than most bytes, or not begun as `first` says. */
static int get_text(FILE *in, const char *first, size_t most, char **ret_text, size_t *ret_len)
{
	size_t len = 0, size = 0;
	char *text = NULL;
	int c, err = 0;

	errno = 0;
	while ((c = getc_unlocked(in)) != EOF && c != '\n') {
		if (len == size) {
			size_t more = size ? 2 * size : 4096;
			char *bigger = realloc(text, more);

			if (!bigger) {
				err = -ENOMEM;
				break;
			}
			text = bigger;
			size = more;
		}
		if (len == most || (*first && c != (unsigned char)*first++)) {
			err = -EINVAL;
			break;
		}
		text[len++] = (char)c;
	}
	if (!err && c == EOF && ferror(in))
		err = errno ? -errno : -EIO;
	else if (!err && c == EOF && len == 0)
		err = -ENODATA;
	if (err) {
		free(text);
		return err;
	}
	*ret_text = text;
	*ret_len = len;
	return 0;
}

/* The next line as JSON, for the caller to decref. */
static int get_line(FILE *in, const char *first, size_t most, json_t **ret_line)
{
	char *text;
	json_t *line;
	size_t len;
	int err = get_text(in, first, most, &text, &len);

	if (err)
		return err;
	line = len ? json_loadb(text, len, 0, NULL) : NULL;
	free(text);
	if (!json_is_object(line)) {
		json_decref(line);
		return -EINVAL;
	}
	*ret_line = line;
	return 0;
}

static int get_settings(const json_t *j, struct tuner_settings *ret_settings)
{
	struct tuner_settings s;

	for (int k = 0; k < TUNER_KNOBS; k++) {
		const json_t *v = json_object_get(j, tuner_knob_name((enum tuner_knob)k));
		unsigned level = 0, levels = tuner_knob_levels((enum tuner_knob)k);

		while (level < levels &&
		       json_integer_value(v) != tuner_knob_value((enum tuner_knob)k, level))
			level++;
		if (!json_is_integer(v) || level == levels)
			return -EINVAL;
		s.level[k] = (uint8_t)level;
	}
	*ret_settings = s;
	return 0;
}

static int get_levels(const json_t *j, uint8_t *ret_level)
{
	if (json_array_size(j) != TUNER_KNOBS)
		return -EINVAL;
	for (int k = 0; k < TUNER_KNOBS; k++) {
		const json_t *e = json_array_get(j, (size_t)k);
		json_int_t v = json_integer_value(e);

		if (!json_is_integer(e) || v < 0 ||
		    v >= (json_int_t)tuner_knob_levels((enum tuner_knob)k))
			return -EINVAL;
		ret_level[k] = (uint8_t)v;
	}
	return 0;
}

/* Features that are null or left out are missing. */
static int get_features(const json_t *j, struct tuner_features *ret_features)
{
	if (!json_is_object(j))
		return -EINVAL;
	for (int f = 0; f < TUNER_FEATURES; f++) {
		const json_t *v = json_object_get(j, tuner_feature_name((enum tuner_feature)f));

		ret_features->v[f] = json_is_number(v) ? (float)json_number_value(v) : NAN;
	}
	return 0;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int from_hex(const char *text, void **ret_bytes, size_t *ret_len)
{
	size_t len = strlen(text) / 2;
	uint8_t *bytes = malloc(len + 1);

	if (!bytes)
		return -ENOMEM;
	for (size_t i = 0; i < len; i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0) {
			free(bytes);
			return -EINVAL;
		}
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	*ret_bytes = bytes;
	*ret_len = len;
	return 0;
}

static int get_head(const json_t *j, struct tuner_config *c, void **ret_model, size_t *ret_len)
{
	const char *policy = json_string_value(json_object_get(j, "policy"));
	const char *model = json_string_value(json_object_get(j, "model"));

	if (!json_is_integer(json_object_get(j, "kvfs_tuner_trace")) || !policy)
		return -EINVAL;
	if (json_integer_value(json_object_get(j, "kvfs_tuner_trace")) != TUNER_SCHEMA)
		return -ESTALE;
	tuner_config_init(c);
	c->policy = tuner_policy_by_name(policy);
	c->seed = (uint64_t)json_integer_value(json_object_get(j, "seed"));
	c->min_ops_per_s = json_number_value(json_object_get(j, "min_ops_per_s"));
	c->forecast = json_is_true(json_object_get(j, "forecast"));
	if (!c->policy || get_settings(json_object_get(j, "shipped"), &c->shipped))
		return -EINVAL;
	*ret_model = NULL;
	*ret_len = 0;
	return model ? from_hex(model, ret_model, ret_len) : 0;
}

int tuner_trace_read_head(FILE *in, struct tuner_config *ret_config, void **ret_model,
			  size_t *ret_len)
{
	struct tuner_config config;
	json_t *line;
	int err = get_line(in, begin, HEAD_BYTES_MAX, &line);

	if (err)
		return err == -ENODATA ? -EINVAL : err;
	err = get_head(line, &config, ret_model, ret_len);
	json_decref(line);
	if (!err)
		*ret_config = config;
	return err;
}

static int get_action(const json_t *j, enum tuner_action *ret_action)
{
	const char *name = json_string_value(j);

	for (int a = 0; name && a < TUNER_ACTIONS; a++) {
		if (strcmp(name, tuner_action_name((enum tuner_action)a)) == 0) {
			*ret_action = (enum tuner_action)a;
			return 0;
		}
	}
	return -EINVAL;
}

static int get_window(const json_t *j, struct tuner_recorded *r)
{
	memset(r, 0, sizeof(*r));
	r->window.index = (uint64_t)json_integer_value(json_object_get(j, "window"));
	r->window.flags = (uint32_t)json_integer_value(json_object_get(j, "flags"));
	if (get_settings(json_object_get(j, "before"), &r->window.in_force) ||
	    get_settings(json_object_get(j, "after"), &r->after) ||
	    get_features(json_object_get(j, "seen"), &r->window.features) ||
	    get_levels(json_object_get(j, "lo"), r->window.bounds.lo) ||
	    get_levels(json_object_get(j, "hi"), r->window.bounds.hi) ||
	    get_action(json_object_get(j, "action"), &r->action))
		return -EINVAL;
	r->choice = -1;
	if (!json_is_object(json_object_get(j, "choice")))
		return 0;
	r->choice = (int)json_integer_value(json_object_get(j, "chosen"));
	r->prior = (float)json_number_value(json_object_get(j, "prior"));
	r->prior_error = (float)json_number_value(json_object_get(j, "prior_error"));
	if (!(r->prior_error > 0))
		return -EINVAL;
	return get_settings(json_object_get(j, "choice"), &r->choice_settings);
}

int tuner_trace_read(FILE *in, struct tuner_recorded *ret_recorded)
{
	struct tuner_recorded r;
	json_t *line;
	int err = get_line(in, "", WINDOW_BYTES_MAX, &line);

	if (err)
		return err;
	err = get_window(line, &r);
	json_decref(line);
	if (!err)
		*ret_recorded = r;
	return err;
}
