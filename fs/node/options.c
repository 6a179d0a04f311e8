/* SPDX-License-Identifier: Apache-2.0 */
/* Options in lists and files, and what only holds for all of them together: see options.h. */
#include "fs/node/options.h"

#include "replication/transport/transport.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <string.h>

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

/* What a mirror will be reached by, as far as it is known before anybody asked it. */
static const struct transport_ops *option_transport(const struct options *o, const struct addr *a)
{
	char text[VERBS_TEXT_BYTES];

	if (a->kind == ADDR_AUTO && verbs_available(o->rdma_device, text, sizeof(text)) == 0)
		return &transport_verbs_ops;
	return transport_for(a->kind);
}

/* One figure for all mirrors: the least of what their transports want; without any, tcp's. */
static void option_default_knobs(struct options *o)
{
	unsigned poll_us = TRANSPORT_POLL_US_DEFAULT, lanes = TRANSPORT_LANES_MAX;

	for (unsigned i = 0; i < o->mirrors.count || i == 0; i++) {
		const struct transport_ops *ops = o->mirrors.count ?
			option_transport(o, &o->mirrors.list[i]) : &transport_tcp_ops;

		poll_us = ops->poll_us < poll_us ? ops->poll_us : poll_us;
		lanes = ops->lanes_used < lanes ? ops->lanes_used : lanes;
	}
	if (o->poll_us == TRANSPORT_POLL_US_DEFAULT)
		o->poll_us = poll_us;
	o->lanes_default = o->lanes == 0;
	if (o->lanes_default)
		o->lanes = o->lanes_open && o->lanes_open < lanes ? o->lanes_open : lanes;
}

int options_finish(struct options *o, char why[OPTIONS_WHY_BYTES])
{
	option_fix_addrs(o, &o->mirrors);
	option_fix_addrs(o, &o->listen);
	if (o->role == OPTIONS_MOUNT)
		option_default_knobs(o);
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
			 "a mirror needs listen=ADDR, for example -o listen=tcp:0.0.0.0:7470");
		return -EINVAL;
	}
	return 0;
}
