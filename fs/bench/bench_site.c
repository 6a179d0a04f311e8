/* SPDX-License-Identifier: Apache-2.0 */
/* The temporary directory and its volumes: see bench_site.h. */
#include "fs/bench/bench_site.h"

#include "common/clock.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Two pools of 128 MiB, which stay mapped: what is measured is no page faults of a fresh log. */
#define SITE_LOG_BYTES (256ULL << 20)
#define SITE_VALUES_BYTES (256ULL << 20) /* room for checkpoints */

struct site_identity {
	uint8_t uuid[16], key[VOLUME_KEY_BYTES];
};

static int site_fail(const struct bench_site *s, int err, const char *what, char *why)
{
	snprintf(why, NODE_WHY_BYTES, "%s: %s: %s", s->path, what, strerror(-err));
	return err;
}

void bench_site_volume(const struct bench_site *s, const char *node, char out[PATH_MAX])
{
	if (snprintf(out, PATH_MAX, "%s/%s", s->path, node) >= PATH_MAX)
		out[PATH_MAX - 1] = '\0'; /* bench_site_open has left room */
}

/* What mkfs.kvfs makes, without its questions: nothing is there, and nothing has to last. */
static int site_fill_volume(int dirfd, const struct site_identity *id, bool is_mirror)
{
	struct volume v = { .dirfd = dirfd, .lockfd = -1 };
	struct volume_super *super = &v.super;
	struct ckpt *ckpt = NULL;
	int err = oplog_create(&logdev_pmemlog_ops, dirfd, SITE_LOG_BYTES);

	if (!err)
		err = ckpt_open(dirfd, true, id->uuid, &ckpt);
	ckpt_close(ckpt);
	if (!err)
		err = volume_key_write(dirfd, VOLUME_KEY_NAME, id->key, id->uuid);
	if (err)
		return err;
	super->format_version = VOLUME_FORMAT_VERSION;
	super->state = VOLUME_READY;
	super->is_mirror = is_mirror;
	super->log_bytes = SITE_LOG_BYTES;
	super->created_ns = clock_real_ns();
	memcpy(super->uuid, id->uuid, sizeof(super->uuid));
	volume_key_id(id->key, super->key_id);
	while (super->node_id == 0)
		super->node_id = randombytes_random();
	err = volume_lock(dirfd, VOLUME_LOCK_CREATE, &v.lockfd);
	if (!err)
		err = volume_write_super(&v);
	if (v.lockfd >= 0)
		close(v.lockfd);
	return err;
}

static int site_make_volume(const struct bench_site *s, const char *name,
			    const struct site_identity *id, bool is_mirror, char *why)
{
	char path[PATH_MAX];
	int fd = -1, err = 0;

	bench_site_volume(s, name, path);
	if (mkdir(path, 0700) != 0)
		err = -errno;
	if (!err && (fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		err = -errno;
	if (!err)
		err = site_fill_volume(fd, id, is_mirror);
	if (fd >= 0)
		close(fd);
	return err ? site_fail(s, err, "a volume can't be made", why) : 0;
}

static int site_check_room(const char *dir, unsigned nodes, char *why)
{
	uint64_t need = nodes * (SITE_LOG_BYTES + SITE_VALUES_BYTES), there;
	char need_text[UNITS_TEXT_BYTES], there_text[UNITS_TEXT_BYTES];
	struct statvfs v;

	if (statvfs(dir, &v) != 0) {
		snprintf(why, NODE_WHY_BYTES, "%s: %s; give another directory with --dir", dir,
			 strerror(errno));
		return -errno;
	}
	there = (uint64_t)v.f_bavail * v.f_frsize;
	if (there >= need)
		return 0;
	snprintf(why, NODE_WHY_BYTES,
		 "%s has %s free, %u volumes need %s: give another directory with --dir", dir,
		 units_format_size(there, there_text), nodes, units_format_size(need, need_text));
	return -ENOSPC;
}

static int site_make(struct bench_site *s, const char *dir, char *why)
{
	static const char pattern[] = "kvfs-bench-XXXXXX";
	char full[PATH_MAX];

	if (!realpath(dir, full)) {
		snprintf(why, NODE_WHY_BYTES, "%s: %s; give another directory with --dir", dir,
			 strerror(errno));
		return -errno;
	}
	if (strlen(full) + sizeof(pattern) + NAME_MAX + 2 > sizeof(s->path)) {
		snprintf(why, NODE_WHY_BYTES, "--dir: the path is too long");
		return -ENAMETOOLONG;
	}
	memcpy(s->path, full, strlen(full));
	snprintf(s->path + strlen(full), sizeof(pattern) + 1, "/%s", pattern);
	if (!mkdtemp(s->path)) {
		snprintf(why, NODE_WHY_BYTES, "%s: %s; give another directory with --dir", full,
			 strerror(errno));
		s->path[0] = '\0';
		return -errno;
	}
	return 0;
}

int bench_site_open(struct bench_site *s, const char *dir, unsigned mirrors,
		    char why[NODE_WHY_BYTES])
{
	struct site_identity id;
	int err;

	memset(s, 0, sizeof(*s));
	randombytes_buf(&id, sizeof(id));
	err = site_check_room(dir, 1 + mirrors, why);
	if (!err)
		err = site_make(s, dir, why);
	if (!err)
		err = site_make_volume(s, "primary", &id, false, why);
	for (unsigned i = 0; !err && i < mirrors; i++) {
		char name[24];

		snprintf(name, sizeof(name), "mirror%u", i + 1);
		err = site_make_volume(s, name, &id, true, why);
	}
	if (err)
		bench_site_close(s);
	else
		s->mirror_count = mirrors;
	return err;
}

static int site_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path) == 0 ? 0 : -errno;
}

int bench_site_close(struct bench_site *s)
{
	int err = 0;

	bench_site_stop_mirrors(s);
	if (s->path[0])
		err = nftw(s->path, site_remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	s->path[0] = '\0';
	return err;
}

int bench_site_start_mirrors(struct bench_site *s, enum addr_kind kind, const char *options,
			     const struct bench_pause *pause, char why[NODE_WHY_BYTES])
{
	int err = 0;

	for (unsigned i = 0; !err && i < s->mirror_count; i++)
		err = bench_mirror_start(s, i, kind, options, pause, why);
	return err;
}

void bench_site_stop_mirrors(struct bench_site *s)
{
	for (unsigned i = 0; i < BENCH_MIRRORS_MAX; i++)
		bench_mirror_stop(&s->mirrors[i]);
}
