/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that make a volume, in their order: see make.h. */
#include "mkfs/make.h"

#include "common/because.h"
#include "common/clock.h"
#include "common/io.h"
#include "log/ckpt.h"
#include "log/oplog.h"
#include "mkfs/pool_watch.h"
#include "mkfs/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_LOG_BYTES (1ULL << 30)
#define DEFAULT_LOG_FREE_BYTES (8ULL << 30)

void make_plan_random(struct make_plan *plan)
{
	randombytes_buf(plan->uuid, sizeof(plan->uuid));
	plan->uuid[6] = (uint8_t)((plan->uuid[6] & 0x0f) | 0x40); /* RFC 4122 version 4 */
	plan->uuid[8] = (uint8_t)((plan->uuid[8] & 0x3f) | 0x80);
	randombytes_buf(plan->key, sizeof(plan->key));
}

uint64_t make_default_log_bytes(uint64_t free_bytes)
{
	uint64_t bytes = DEFAULT_LOG_BYTES;

	if (free_bytes < DEFAULT_LOG_FREE_BYTES)
		bytes = free_bytes / 8;
	bytes -= bytes % MAKE_LOG_STEP;
	if (bytes < 2 * LOGDEV_SIZE_MIN)
		bytes = 2 * LOGDEV_SIZE_MIN;
	return bytes + MAKE_SPACE_BESIDE_LOGS <= free_bytes ? bytes : 0;
}

static int failed(const struct place *place, const char *name, const char *what, int err,
		  const char **ret_why)
{
	const char *remedy =
	    err == -ENOSPC || err == -EDQUOT ? "; free some space or give a smaller log (-s)" :
	    err == -EFBIG ? "; raise ulimit -f or give a smaller log (-s)" : "";

	return because(err, ret_why, "%s/%s: %s: %s%s", place->path, name, what, strerror(-err),
		       remedy);
}

static int wipe_checkpoints(int dirfd, const uint8_t uuid[16])
{
	struct ckpt *c = NULL;
	int err = ckpt_open(dirfd, false, uuid, &c);

	if (err == -ENOENT)
		return 0;
	if (!err)
		err = ckpt_wipe(c);
	ckpt_close(c);
	return err;
}

/* Removes an older volume's files, all but the locked superblock. On error which of them, and what
 * is wrong. */
static int remove_old(const struct place *place, const uint8_t uuid[16], const char **ret_name,
		      const char **ret_what)
{
	int err = wipe_checkpoints(place->dirfd, uuid);

	*ret_name = "ckpt";
	*ret_what = "old checkpoints can't be removed";
	if (err)
		return err;
	for (size_t i = 0; place_volume_files[i]; i++) {
		const char *name = place_volume_files[i];

		if (strcmp(name, VOLUME_SUPERBLOCK_NAME) == 0)
			continue;
		if (unlinkat(place->dirfd, name, 0) != 0 && errno == EISDIR)
			unlinkat(place->dirfd, name, AT_REMOVEDIR);
		*ret_name = name;
		*ret_what = "the old one can't be removed";
		if (faccessat(place->dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
		    strcmp(name, "ckpt") != 0)
			return -EEXIST;
	}
	*ret_name = "";
	*ret_what = "can't be synced";
	return io_fsync_dir(place->dirfd);
}

static int make_checkpoint_dir(const struct place *place, const uint8_t uuid[16],
			       const char **ret_why)
{
	struct ckpt *c = NULL;
	int err = ckpt_open(place->dirfd, true, uuid, &c);

	if (!err)
		err = io_fsync_dir(ckpt_dirfd(c));
	ckpt_close(c);
	return err ? failed(place, "ckpt", "can't be made", err, ret_why) : 0;
}

/* Opens the first pool as the mount will, to learn what it really is on. */
static int judge_medium(const struct place *place, bool *ret_pmem, const char **ret_why)
{
	struct logdev *dev = NULL;
	int err = logdev_pmemlog_ops.open(place->dirfd, "log.0", &dev);

	if (err)
		return failed(place, "log.0", "can't be opened after it was made", err, ret_why);
	*ret_pmem = logdev_pmemlog_ops.is_pmem(dev);
	logdev_pmemlog_ops.close(dev);
	return 0;
}

/* The names by which the pools' devices are found. */
static int link_devices(const struct place *place, const struct make_plan *plan,
			const char **ret_why)
{
	static const char *const names[] = { "log.0", "log.1" };

	for (size_t i = 0; i < 2 && plan->log_device[0]; i++) {
		if (symlinkat(plan->log_device[i], place->dirfd, names[i]) != 0)
			return failed(place, names[i], "the link to its device can't be made",
				      -errno, ret_why);
	}
	return 0;
}

static int make_parts(const struct place *place, const struct make_plan *plan,
		      struct progress *progress, bool *ret_pmem, const char **ret_why)
{
	struct pool_watch watch;
	int err = volume_key_write(place->dirfd, VOLUME_KEY_NAME, plan->key, plan->uuid);

	if (err)
		return failed(place, VOLUME_KEY_NAME, "can't be written", err, ret_why);
	err = link_devices(place, plan, ret_why);
	if (err)
		return err;
	pool_watch_start(&watch, progress, place->dirfd, plan->log_bytes);
	err = oplog_create(&logdev_pmemlog_ops, place->dirfd, plan->log_bytes);
	pool_watch_stop(&watch);
	if (err)
		return failed(place, "log.*", "the log pools can't be made", err, ret_why);
	err = make_checkpoint_dir(place, plan->uuid, ret_why);
	if (!err)
		err = judge_medium(place, ret_pmem, ret_why);
	if (err)
		return err;
	err = io_fsync_dir(place->dirfd);
	return err ? failed(place, "", "can't be synced", err, ret_why) : 0;
}

static struct volume_super super_of_plan(const struct make_plan *plan)
{
	struct volume_super s = {
		.format_version = VOLUME_FORMAT_VERSION,
		.state = VOLUME_INCOMPLETE,
		.is_mirror = plan->joins,
		.log_bytes = plan->log_bytes,
		.created_ns = clock_real_ns(),
	};

	memcpy(s.uuid, plan->uuid, sizeof(s.uuid));
	snprintf(s.label, sizeof(s.label), "%s", plan->label);
	volume_key_id(plan->key, s.key_id);
	while (s.node_id == 0)
		s.node_id = randombytes_random();
	return s;
}

/* The names in its parent, too, when the directory is new. */
static int sync_parent(const struct place *place)
{
	int fd = openat(place->dirfd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int err;

	if (fd < 0)
		return -errno;
	err = io_fsync_dir(fd);
	close(fd);
	return err;
}

static int write_super(const struct place *place, struct volume *v, const char **ret_why)
{
	int err = volume_write_super(v);

	if (!err)
		err = io_fsync_dir(place->dirfd);
	if (!err)
		err = sync_parent(place);
	return err ? failed(place, VOLUME_SUPERBLOCK_NAME, "can't be written", err, ret_why) : 0;
}

/* After a failure nothing is left that takes space or looks like a volume. */
static void undo(struct place *place, bool was_absent, const uint8_t uuid[16])
{
	const char *name, *what; /* why it was to be undone is what is said */

	if (place->dirfd < 0)
		return;
	remove_old(place, uuid, &name, &what);
	unlinkat(place->dirfd, VOLUME_SUPERBLOCK_NAME, 0);
	place_abandon(place, was_absent);
}

int make_volume(struct place *place, const struct make_plan *plan, struct progress *progress,
		struct volume_super *ret_super, enum place_medium *ret_medium, const char **ret_why)
{
	struct volume v = { .super = super_of_plan(plan) };
	bool was_absent = place->content == PLACE_ABSENT;
	const char *name, *what;
	struct volume_super old;
	int err = place_claim(place, ret_why);

	if (err)
		return err;
	v.dirfd = place->dirfd;
	v.lockfd = place->lockfd;
	/* Above an older volume's sequence, else a stop between the copies would bring it back. */
	if (volume_super_choose(v.lockfd, &old, &v.copy) == 0)
		v.super.sequence = old.sequence;
	err = write_super(place, &v, ret_why);
	if (!err) {
		err = remove_old(place, plan->uuid, &name, &what);
		if (err)
			failed(place, name, what, err, ret_why);
	}
	if (!err)
		err = make_parts(place, plan, progress, &v.super.is_pmem, ret_why);
	if (!err) {
		v.super.state = VOLUME_READY;
		err = write_super(place, &v, ret_why);
	}
	if (err) {
		undo(place, was_absent, plan->uuid);
		return err;
	}
	*ret_super = v.super;
	*ret_medium = v.super.is_pmem ? PLACE_PMEM :
		      storage_is_tmpfs(place->dirfd) ? PLACE_MEMORY : PLACE_FILE;
	return 0;
}
