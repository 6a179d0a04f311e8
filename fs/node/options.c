/* SPDX-License-Identifier: Apache-2.0 */
/* The option table and its setters: see options.h. */
#include "fs/node/options.h"

#include "common/units.h"
#include "replication/commit/commit.h"
#include "replication/memory/region_memory.h"
#include "replication/transport/transport.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum option_kind {
	KIND_FLAG, KIND_SIZE, KIND_UINT, KIND_CHOICE, KIND_ADDR, KIND_MEMORY, KIND_DEVICE,
	KIND_METRICS,
};

struct option_def {
	const char *name;
	enum option_kind kind;
	unsigned roles;
	size_t field;
	uint64_t min, max;
	const char *choices;  /* KIND_CHOICE: names by value, separated by '|' */
	const char *arg;
	const char *help;
};

#define FIELD(f) offsetof(struct options, f)
#define BOTH (OPTIONS_MOUNT | OPTIONS_MIRROR)

static const struct option_def option_table[] = {
	{ "arena", KIND_SIZE, BOTH, FIELD(arena_bytes), 16 << 20, 1ULL << 46, NULL, "SIZE",
	  "memory for values (default: half of the machine's)" },
	{ "inodes", KIND_UINT, BOTH, FIELD(inodes_max), 16, 1ULL << 40, NULL, "N",
	  "most keys and directories (default: what a quarter of the memory holds)" },
	{ "mirror", KIND_ADDR, OPTIONS_MOUNT, FIELD(mirrors), 0, 0, NULL, "ADDR",
	  "a mirror: HOST:PORT, verbs:HOST:PORT, tcp:HOST:PORT or shm:SOCKET; may be repeated" },
	{ "listen", KIND_ADDR, OPTIONS_MIRROR, FIELD(listen), 0, 0, NULL, "ADDR",
	  "where the mirror waits for its primary; may be repeated" },
	{ "protocol", KIND_CHOICE, OPTIONS_MOUNT, FIELD(protocol), 0, 0, "A|B|C", "A|B|C",
	  "acknowledge when in the local log (A), also in the mirrors' memory (B), also in their "
	  "logs (C) "
	  "(default: C)" },
	{ "transport", KIND_CHOICE, BOTH, FIELD(transport), 0, 0, "auto|verbs|tcp|shm",
	  "auto|verbs|tcp|shm",
	  "transport of addresses without a prefix; auto: verbs where both ends have it, "
	  "else tcp (default: auto)" },
	{ "min_mirrors", KIND_UINT, OPTIONS_MOUNT, FIELD(min_mirrors), 0, OPTIONS_MIRRORS_MAX, NULL,
	  "N",
	  "mirrors in sync that a write needs (default: a majority of the nodes; 0: go on alone)" },
	{ "timeout", KIND_UINT, OPTIONS_MOUNT, FIELD(timeout_s), 1, 3600, NULL, "SEC",
	  "longest wait of a write for its mirrors before it fails with EIO (default: 30)" },
	{ "early_truncate", KIND_CHOICE, OPTIONS_MOUNT, FIELD(early_truncate), 0, 0, "on|off",
	  "on|off",
	  "a key that open(2) empties: answered when the own log has it, as its new value follows "
	  "(default: off)" },
	{ "too_few_mirrors", KIND_CHOICE, OPTIONS_MOUNT, FIELD(too_few_mirrors), 0, 0,
	  "fail|readonly", "fail|readonly",
	  "below min_mirrors for longer than timeout, a change waits and fails with EIO, or fails "
	  "at once with EROFS (default: fail)" },
	{ "connect_timeout", KIND_UINT, OPTIONS_MOUNT, FIELD(connect_s), 1, 3600, NULL, "SEC",
	  "longest wait of the mount for min_mirrors (default: 10)" },
	{ "lanes", KIND_UINT, OPTIONS_MOUNT, FIELD(lanes), 1, 40, NULL, "N",
	  "connections used to each mirror; the tuner opens more ahead (default: 2)" },
	{ "lanes", KIND_UINT, OPTIONS_MIRROR, FIELD(lanes), 1, 40, NULL, "N",
	  "most connections that a primary may open (default: 40)" },
	{ "lanes_open", KIND_UINT, OPTIONS_MOUNT, FIELD(lanes_open), 1, 40, NULL, "N",
	  "connections opened to each mirror, for the tuner to choose from (default: twice lanes "
	  "with tuner=on, at least 4)" },
	{ "poll_us", KIND_UINT, BOTH, FIELD(poll_us), 0, 1000000, NULL, "N",
	  "most microseconds to spin for an event before sleeping, while it pays "
	  "(default: shm 200, verbs 50, tcp 0)" },
	{ "mr_cache_size", KIND_SIZE, BOTH, FIELD(mr_cache_bytes), 0, 1ULL << 46, NULL, "SIZE",
	  "registered memory kept ready ahead of need (default: 64M)" },
	{ "memory", KIND_MEMORY, BOTH, FIELD(memory), 0, 0, NULL, "WHERE",
	  "memory of the arena: host, numa:NODE, devdax:/dev/daxX.Y, gpu or gpu:NUMBER (default: "
	  "host)" },
	{ "ack_timeout", KIND_UINT, BOTH, FIELD(ack_timeout), 1, 31, NULL, "N",
	  "verbs: a queue pair sends again after 4.096 us * 2^N without an answer (default: 14, 67 "
	  "ms)" },
	{ "rdma_device", KIND_DEVICE, BOTH, FIELD(rdma_device), 0, 0, NULL, "NAME[:PORT[:GID]]",
	  "verbs: device, port and GID to use (default: what leads to the peer)" },
	{ "ring", KIND_SIZE, OPTIONS_MIRROR, FIELD(ring_bytes), 4 << 20, 3ULL << 30, NULL, "SIZE",
	  "receive ring of the mirror (default: 64M)" },
	{ "metrics", KIND_METRICS, BOTH, FIELD(metrics), 0, 0, NULL, "ADDR|off",
	  "where Prometheus finds the figures (default: the first free port from "
	  "127.0.0.1:7480 on)" },
	{ "threads", KIND_UINT, BOTH, FIELD(threads), 1, 16, NULL, "N",
	  "threads that serve requests (default: one a processor, 2 to 16)" },
	{ "uring", KIND_CHOICE, BOTH, FIELD(uring), 0, 0, "auto|off", "auto|off",
	  "take requests over io_uring where the kernel offers it (default: auto)" },
	{ "tuner", KIND_CHOICE, OPTIONS_MOUNT, FIELD(tuner), 0, 0, "on|off", "on|off",
	  "move lanes, poll_us, batches and mr_cache_size with the load (default: on)" },
	{ "tuner_policy", KIND_CHOICE, OPTIONS_MOUNT, FIELD(tuner_policy), 0, 0,
	  "xgboost|bandit|qlearning|static", "xgboost|bandit|qlearning|static",
	  "what chooses the steps; static only measures (default: xgboost)" },
	{ "xattr", KIND_FLAG, BOTH, FIELD(xattr), 0, 0, NULL, NULL,
	  "extended attributes (each cached write then costs one more request)" },
	{ "ro", KIND_FLAG, OPTIONS_MOUNT, FIELD(ro), 0, 0, NULL, NULL, "read-only" },
	{ "promote", KIND_FLAG, OPTIONS_MOUNT, FIELD(promote), 0, 0, NULL, NULL,
	  "make a mirror's volume the primary's, in a new epoch; only when the old primary is gone "
	  "for good" },
	{ "force", KIND_FLAG, OPTIONS_MOUNT, FIELD(force), 0, 0, NULL, NULL,
	  "with promote: also a mirror that was not in sync; what it lacks is lost" },
	{ "noatime", KIND_FLAG, OPTIONS_MOUNT, FIELD(noatime), 0, 0, NULL, NULL,
	  "never update access times" },
	{ "nodiratime", KIND_FLAG, OPTIONS_MOUNT, FIELD(nodiratime), 0, 0, NULL, NULL,
	  "never update directories' access times" },
	{ "allow_other", KIND_FLAG, BOTH, FIELD(allow_other), 0, 0, NULL, NULL,
	  "users beside the one who mounts may use it (default: on for root)" },
};
#define OPTION_COUNT (sizeof(option_table) / sizeof(option_table[0]))

/* Words of fstab that say nothing to kvfs, and those the kernel's mount takes. */
static const char *const option_ignored[] = {
	"rw", "auto", "noauto", "user", "nouser", "users", "owner", "group", "_netdev", "nofail",
	"defaults", "relatime", "norelatime", "strictatime", "atime", "diratime",
	"async", "iversion", "noiversion", "silent", "loud", "nolazytime", "symfollow", NULL,
};
static const char *const option_kernel[] = {
	"exec", "noexec", "suid", "nosuid", "dev", "nodev", "sync", "dirsync", NULL,
};

static bool option_word_in(const char *const *words, const char *word)
{
	for (; *words; words++) {
		if (strcmp(*words, word) == 0)
			return true;
	}
	return false;
}

void options_init(struct options *o, enum options_role role)
{
	memset(o, 0, sizeof(*o));
	o->role = role;
	o->protocol = COMMIT_PROTOCOL_C;
	o->transport = ADDR_AUTO;
	o->min_mirrors = OPTIONS_MAJORITY;
	o->timeout_s = 30;
	o->early_truncate = OPTIONS_OFF;
	o->connect_s = 10;
	o->lanes = role == OPTIONS_MIRROR ? 40 : 2;
	o->poll_us = TRANSPORT_POLL_US_DEFAULT;
	o->ack_timeout = 14;
	o->mr_cache_bytes = 64 << 20;
	o->allow_other = geteuid() == 0;
	snprintf(o->metrics.at.host, sizeof(o->metrics.at.host), "%s", OPTIONS_METRICS_HOST);
	o->metrics.at.port = OPTIONS_METRICS_PORT;
	static_assert(OPTION_COUNT <= sizeof(o->source), "options.source");
}

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
	if (d->field == FIELD(inodes_max))
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
	if (d->field == FIELD(mirrors) && field->list[at].kind != ADDR_SHM &&
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
	const struct option_def *d = &option_table[index];
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
	bool elsewhere = false;
	size_t i;

	for (i = 0; i < OPTION_COUNT; i++) {
		const struct option_def *d = &option_table[i];

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

/* One word of -o. */
static int option_set_word(struct options *o, const char *word, enum options_source source,
			   char *why)
{
	size_t used = strlen(o->kernel);

	if (!*word || option_word_in(option_ignored, word) || strncmp(word, "x-", 2) == 0 ||
	    strncmp(word, "comment=", 8) == 0)
		return 0;
	if (strcmp(word, "ro") == 0 && o->role == OPTIONS_MIRROR)
		return 0; /* a mirror's view always is */
	if (!option_word_in(option_kernel, word))
		return options_set(o, word, source, why);
	if (used + strlen(word) + 2 > sizeof(o->kernel)) {
		snprintf(why, OPTIONS_WHY_BYTES, "too many mount flags");
		return -EINVAL;
	}
	snprintf(o->kernel + used, sizeof(o->kernel) - used, ",%s", word);
	return 0;
}

int options_set_list(struct options *o, const char *list, enum options_source source,
		     char why[OPTIONS_WHY_BYTES])
{
	char word[512];

	while (*list) {
		size_t len = 0;
		int err;

		for (; *list && *list != ','; list++) {
			if (*list == '\\' && list[1])
				list++;
			if (len + 1 >= sizeof(word)) {
				snprintf(why, OPTIONS_WHY_BYTES,
					 "an option is longer than %zu bytes", sizeof(word) - 1);
				return -EINVAL;
			}
			word[len++] = *list;
		}
		word[len] = '\0';
		if (*list)
			list++;
		err = option_set_word(o, word, source, why);
		if (err)
			return err;
	}
	return 0;
}

/* One line of a file, which it may change. */
static int option_set_line(struct options *o, char *line, enum options_source source, char *why)
{
	char *text = line + strspn(line, " \t");
	size_t len = strcspn(text, "#\r\n");

	while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
		len--;
	text[len] = '\0';
	return len ? options_set(o, text, source, why) : 0;
}

static int option_file_error(const char *path, int err, char *why)
{
	snprintf(why, OPTIONS_WHY_BYTES, "cannot read %.300s: %s%s", path, strerror(-err),
		 err == -EACCES ? "; run as the volume's owner or root" : "");
	return err;
}

int options_read_file(struct options *o, const char *path, enum options_source source,
		      char why[OPTIONS_WHY_BYTES])
{
	char line[1024], reason[OPTIONS_WHY_BYTES];
	FILE *f = fopen(path, "re");
	unsigned number = 0;
	int err = 0;

	if (!f)
		return errno == ENOENT || errno == ENOTDIR ? 0
							   : option_file_error(path, -errno, why);
	while (!err && fgets(line, sizeof(line), f)) {
		number++;
		if (strlen(line) + 1 == sizeof(line) && !strchr(line, '\n')) {
			snprintf(reason, sizeof(reason), "longer than %zu bytes", sizeof(line) - 2);
			err = -EINVAL;
		} else {
			err = option_set_line(o, line, source, reason);
		}
		if (err)
			snprintf(why, OPTIONS_WHY_BYTES, "%.200s line %u: %.250s", path, number,
				 reason);
	}
	if (!err && ferror(f))
		err = option_file_error(path, -errno, why);
	fclose(f);
	return err;
}

/* Addresses without a prefix take transport=. */
static void option_fix_addrs(const struct options *o, struct options_addrs *addrs)
{
	unsigned i;

	for (i = 0; i < addrs->count; i++) {
		struct addr *a = &addrs->list[i];

		if (a->kind == ADDR_AUTO && o->transport != ADDR_SHM)
			a->kind = (enum addr_kind)o->transport;
	}
}

/* One figure for all mirrors: the least of what their transports want. */
static unsigned option_default_poll_us(const struct options *o)
{
	unsigned least = TRANSPORT_POLL_US_DEFAULT;

	for (unsigned i = 0; i < o->mirrors.count; i++) {
		const struct transport_ops *ops = transport_for(o->mirrors.list[i].kind);

		if (ops && ops->poll_us < least)
			least = ops->poll_us;
	}
	return least == TRANSPORT_POLL_US_DEFAULT ? 0 : least;
}

int options_finish(struct options *o, char why[OPTIONS_WHY_BYTES])
{
	option_fix_addrs(o, &o->mirrors);
	option_fix_addrs(o, &o->listen);
	if (o->role == OPTIONS_MOUNT && o->poll_us == TRANSPORT_POLL_US_DEFAULT)
		o->poll_us = option_default_poll_us(o);
	if (o->lanes_open && o->lanes_open < o->lanes) {
		snprintf(why, OPTIONS_WHY_BYTES, "lanes_open=%u is fewer than lanes=%u",
			 o->lanes_open, o->lanes);
		return -EINVAL;
	}
	if (o->min_mirrors == OPTIONS_MAJORITY)
		o->min_mirrors = (o->mirrors.count + 1) / 2;
	if (o->min_mirrors > o->mirrors.count) {
		snprintf(why, OPTIONS_WHY_BYTES, "min_mirrors=%u, but only %u mirror%s given",
			 o->min_mirrors, o->mirrors.count, o->mirrors.count == 1 ? " is" : "s are");
		return -EINVAL;
	}
	if (o->role == OPTIONS_MIRROR && o->listen.count == 0) {
		snprintf(why, OPTIONS_WHY_BYTES,
			 "a mirror needs listen=ADDR, for example -o listen=tcp:0.0.0.0:7700");
		return -EINVAL;
	}
	return 0;
}

void options_help(enum options_role role, FILE *out)
{
	char left[64];
	size_t i;

	for (i = 0; i < OPTION_COUNT; i++) {
		const struct option_def *d = &option_table[i];

		if (!(d->roles & role))
			continue;
		snprintf(left, sizeof(left), "%s%s%s", d->name, d->arg ? "=" : "",
			 d->arg ? d->arg : "");
		fprintf(out, "  %-26s%s%s\n", left,
			strlen(left) > 25 ? "\n                            " : "", d->help);
	}
}
