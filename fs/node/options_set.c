/* SPDX-License-Identifier: Apache-2.0 */
/* One option is set, by whatever route: see options.h. */
#include "fs/node/options_internal.h"

#include "common/units.h"
#include "replication/memory/region_memory.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static int option_set_flag(const struct option_def *d, bool *field, const char *value, char *why)
{
	if (!value || strcmp(value, "on") == 0 || strcmp(value, "yes") == 0 ||
	    strcmp(value, "1") == 0) {
		*field = true;
		return 0;
	}
	if (strcmp(value, "off") == 0 || strcmp(value, "no") == 0 || strcmp(value, "0") == 0) {
		*field = false;
		return 0;
	}
	snprintf(why, OPTIONS_WHY_BYTES, "option %s is on or off, not '%s'", d->name, value);
	return -EINVAL;
}

static int option_set_size(const struct option_def *d, uint64_t *field, const char *value,
			   char *why)
{
	char low[UNITS_TEXT_BYTES], high[UNITS_TEXT_BYTES];
	uint64_t bytes;

	if (units_parse_size(value, &bytes) != 0) {
		snprintf(why, OPTIONS_WHY_BYTES, "option %s wants a size like 512M or 4G, not '%s'",
			 d->name, value);
		return -EINVAL;
	}
	if (bytes < d->min || bytes > d->max) {
		snprintf(why, OPTIONS_WHY_BYTES, "option %s=%s is not between %s and %s", d->name,
			 value, units_format_size(d->min, low), units_format_size(d->max, high));
		return -EINVAL;
	}
	*field = bytes;
	return 0;
}

static int option_set_uint(const struct option_def *d, void *field, const char *value, char *why)
{
	uint64_t number;

	if (units_parse_u64(value, d->min, d->max, &number) != 0) {
		snprintf(why, OPTIONS_WHY_BYTES,
			 "option %s wants a number from %llu to %llu, not '%s'", d->name,
			 (unsigned long long)d->min, (unsigned long long)d->max, value);
		return -EINVAL;
	}
	if (d->field == offsetof(struct options, inodes_max))
		*(uint64_t *)field = number;
	else
		*(unsigned *)field = (unsigned)number;
	return 0;
}

static int option_set_choice(const struct option_def *d, unsigned *field, const char *value,
			     char *why)
{
	size_t len = strlen(value);
	const char *p = d->choices;
	unsigned i;

	for (i = 0; len > 0 && p; i++) {
		if (strncmp(p, value, len) == 0 && (p[len] == '|' || p[len] == '\0')) {
			*field = i;
			return 0;
		}
		p = strchr(p, '|');
		p = p ? p + 1 : NULL;
	}
	snprintf(why, OPTIONS_WHY_BYTES, "option %s is one of %s, not '%s'", d->name, d->arg,
		 value);
	return -EINVAL;
}

static int option_add_addr(const struct option_def *d, struct options_addrs *field,
			   const char *value, bool replace, char *why)
{
	unsigned at = replace ? 0 : field->count;
	const char *reason = "not an address";

	if (at == OPTIONS_MIRRORS_MAX) {
		snprintf(why, OPTIONS_WHY_BYTES, "option %s is given more than %d times", d->name,
			 OPTIONS_MIRRORS_MAX);
		return -EINVAL;
	}
	if (addr_parse(value, &field->list[at], &reason) != 0) {
		snprintf(why, OPTIONS_WHY_BYTES, "option %s=%s: %s", d->name, value, reason);
		return -EINVAL;
	}
	/* listen= may say 0: any free port, which status shows */
	if (d->field == offsetof(struct options, mirrors) && field->list[at].kind != ADDR_SHM &&
	    field->list[at].port == 0) {
		snprintf(why, OPTIONS_WHY_BYTES, "option %s=%s: the port is from 1 to 65535",
			 d->name, value);
		return -EINVAL;
	}
	field->count = at + 1;
	return 0;
}

static int option_set_memory(const struct option_def *d, char *field, const char *value, char *why)
{
	char reason[REGION_MEMORY_WHY_BYTES];
	struct region_memory memory;

	if (strlen(value) >= OPTIONS_MEMORY_BYTES ||
	    region_memory_parse(value, &memory, reason) != 0) {
		snprintf(why, OPTIONS_WHY_BYTES,
			 "option %s is host, numa:NODE, devdax:/dev/daxX.Y, gpu or gpu:NUMBER, "
			 "not '%.100s'",
			 d->name, value);
		return -EINVAL;
	}
	memcpy(field, value, strlen(value) + 1);
	return 0;
}

static int option_set_device(const struct option_def *d, char *field, const char *value, char *why)
{
	struct verbs_choice c;

	if (strlen(value) >= OPTIONS_DEVICE_BYTES || verbs_choice_parse(value, &c) != 0) {
		snprintf(why, OPTIONS_WHY_BYTES,
			 "option %s wants %s, for example mlx5_0 or mlx5_0:1:3, not '%.100s'",
			 d->name, d->arg, value);
		return -EINVAL;
	}
	memcpy(field, value, strlen(value) + 1);
	return 0;
}

static int option_set_metrics(const struct option_def *d, struct options_metrics *field,
			      const char *value, char *why)
{
	const char *reason = "not an address";
	struct addr at;

	if (strcmp(value, "off") == 0) {
		*field = (struct options_metrics){ .off = true };
		return 0;
	}
	if (addr_parse(value, &at, &reason) != 0) {
		snprintf(why, OPTIONS_WHY_BYTES, "option %s=%s: %s", d->name, value, reason);
		return -EINVAL;
	}
	if (at.kind != ADDR_AUTO && at.kind != ADDR_TCP) {
		snprintf(why, OPTIONS_WHY_BYTES, "option %s is HOST:PORT or off, not '%s'", d->name,
			 value);
		return -EINVAL;
	}
	*field = (struct options_metrics){ .given = true, .at = at };
	return 0;
}

static int option_apply(struct options *o, size_t index, const char *value,
			enum options_source source, char *why)
{
	const struct option_def *d = option_at(index);
	void *field = (char *)o + d->field;
	int err = -EINVAL;

	if (o->source[index] > source)
		return 0; /* a stronger route has spoken */
	if (d->kind != KIND_FLAG && (!value || !*value)) {
		snprintf(why, OPTIONS_WHY_BYTES, "option %s needs a value: %s=%s", d->name, d->name,
			 d->arg);
		return -EINVAL;
	}
	switch (d->kind) {
	case KIND_FLAG:
		err = option_set_flag(d, field, value, why);
		break;
	case KIND_SIZE:
		err = option_set_size(d, field, value, why);
		break;
	case KIND_UINT:
		err = option_set_uint(d, field, value, why);
		break;
	case KIND_CHOICE:
		err = option_set_choice(d, field, value, why);
		break;
	case KIND_ADDR:
		err = option_add_addr(d, field, value, o->source[index] != source, why);
		break;
	case KIND_MEMORY:
		err = option_set_memory(d, field, value, why);
		break;
	case KIND_DEVICE:
		err = option_set_device(d, field, value, why);
		break;
	case KIND_METRICS:
		err = option_set_metrics(d, field, value, why);
		break;
	}
	if (!err)
		o->source[index] = (uint8_t)source;
	return err;
}

int options_set(struct options *o, const char *text, enum options_source source,
		char why[OPTIONS_WHY_BYTES])
{
	size_t name_len = strcspn(text, "=");
	const char *value = text[name_len] ? text + name_len + 1 : NULL;
	const struct option_def *d;
	bool elsewhere = false;
	size_t i;

	for (i = 0; (d = option_at(i)); i++) {
		if (strncmp(d->name, text, name_len) != 0 || d->name[name_len] != '\0')
			continue;
		if (d->roles & o->role)
			return option_apply(o, i, value, source, why);
		elsewhere = true;
	}
	if (elsewhere && source != OPTIONS_COMMAND)
		return 0; /* a configuration file serves both roles */
	snprintf(why, OPTIONS_WHY_BYTES, "%s option '%.*s'%s; see kvfs %s --help",
		 elsewhere ? "misplaced" : "unknown", (int)name_len, text,
		 elsewhere ? (o->role == OPTIONS_MOUNT ? ": it belongs to kvfs mirror" :
							 ": it belongs to kvfs mount") : "",
		 o->role == OPTIONS_MOUNT ? "mount" : "mirror");
	return -EINVAL;
}
