/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a volume: directory, lock, superblock, key; and the sentence that says why it can't be.
 * The lock is an flock on the superblock file, which is never replaced, only rewritten.
 */
#include "log/volume.h"

#include "common/because.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int volume_lock(int dirfd, enum volume_lock_mode mode, int *ret_lockfd)
{
	int flags = mode == VOLUME_LOCK_READ_ONLY ? O_RDONLY : O_RDWR;
	struct stat at_path, opened;
	int fd, err = 0;

	if (mode == VOLUME_LOCK_CREATE)
		flags |= O_CREAT;
	fd = openat(dirfd, VOLUME_SUPERBLOCK_NAME, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
		    0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0)
		err = errno == EWOULDBLOCK ? -EBUSY : -errno;
	/* A failed mkfs removes its superblock: then this lock is on a file that is no more. */
	if (!err && (fstat(fd, &opened) != 0 ||
		     fstatat(dirfd, VOLUME_SUPERBLOCK_NAME, &at_path, AT_SYMLINK_NOFOLLOW) != 0 ||
		     opened.st_ino != at_path.st_ino || opened.st_dev != at_path.st_dev))
		err = -EBUSY;
	if (err) {
		close(fd);
		return err;
	}
	*ret_lockfd = fd;
	return 0;
}

static int open_superblock(struct volume *v, bool probe, const char **ret_why)
{
	int err = 0;

	if (probe) {
		v->lockfd =
		    openat(v->dirfd, VOLUME_SUPERBLOCK_NAME, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (v->lockfd < 0)
			err = -errno;
	} else {
		err = volume_lock(v->dirfd, VOLUME_LOCK_WRITE, &v->lockfd);
	}
	switch (err) {
	case 0:
		return 0;
	case -ENOENT:
		return because(-ENODATA, ret_why,
			       "%s: not a kvfs volume (it has no superblock); make one "
			       "with mkfs.kvfs",
			       v->path);
	case -EBUSY:
		return because(-EBUSY, ret_why,
			       "%s: in use by another kvfs mount, mirror, mkfs or fsck; "
			       "stop that first",
			       v->path);
	case -EACCES:
	case -EPERM:
		return because(-EACCES, ret_why,
			       "%s/%s: permission denied; run as the volume's owner or "
			       "root",
			       v->path, VOLUME_SUPERBLOCK_NAME);
	case -EROFS:
		return because(-EROFS, ret_why,
			       "%s: on a file system mounted read-only; remount it "
			       "read-write",
			       v->path);
	default:
		return because(err, ret_why, "%s/%s: can't be opened: %s", v->path,
			       VOLUME_SUPERBLOCK_NAME, strerror(-err));
	}
}

static int read_superblock(struct volume *v, const char **ret_why)
{
	struct volume_super first;
	int err = volume_super_choose(v->lockfd, &v->super, &v->copy);

	switch (err) {
	case 0:
		break;
	case -ENODATA:
		return because(err, ret_why,
			       "%s: not a kvfs volume (its file %s holds no superblock)", v->path,
			       VOLUME_SUPERBLOCK_NAME);
	case -EPROTONOSUPPORT:
		return because(err, ret_why,
			       "%s: made by another version of kvfs (this one reads format "
			       "%u); use a kvfs that knows its format and features",
			       v->path, VOLUME_FORMAT_VERSION);
	case -EBADMSG:
		return because(
		    err, ret_why,
		    "%s: both copies of the superblock are damaged; make the "
		    "volume again (mkfs.kvfs --join) and let it resync from another node",
		    v->path);
	default:
		return because(err, ret_why, "%s/%s: can't be read: %s", v->path,
			       VOLUME_SUPERBLOCK_NAME, strerror(-err));
	}
	v->used_second_copy = v->copy == 1 && volume_super_read(v->lockfd, 0, &first) != 0;
	if (v->super.state == VOLUME_INCOMPLETE)
		return because(-EUCLEAN, ret_why, "%s: incomplete: mkfs.kvfs did not finish; "
			       "run mkfs.kvfs again", v->path);
	return 0;
}

static int read_key(struct volume *v, const char **ret_why)
{
	static const uint8_t no_uuid[16];
	uint8_t id[16], uuid[16];
	int err = volume_key_read(v->dirfd, VOLUME_KEY_NAME, v->key, uuid);

	if (err == -EACCES || err == -EPERM)
		return because(-EACCES, ret_why,
			       "%s/%s: permission denied; run as the volume's owner or "
			       "root",
			       v->path, VOLUME_KEY_NAME);
	if (err == -ENOENT || err == -EBADMSG)
		return because(-EKEYREJECTED, ret_why,
			       "%s/%s: %s; copy the key file of another node of "
			       "this volume there",
			       v->path, VOLUME_KEY_NAME,
			       err == -ENOENT ? "the key file is missing" : "not a key file");
	if (err)
		return because(err, ret_why, "%s/%s: can't be read: %s", v->path, VOLUME_KEY_NAME,
			       strerror(-err));
	volume_key_id(v->key, id);
	if (sodium_memcmp(id, v->super.key_id, sizeof(id)) != 0 ||
	    (memcmp(uuid, no_uuid, sizeof(uuid)) != 0 &&
	     memcmp(uuid, v->super.uuid, sizeof(uuid)) != 0))
		return because(-EKEYREJECTED, ret_why,
			       "%s/%s: the key of another volume; copy the key file "
			       "of another node of this volume there",
			       v->path, VOLUME_KEY_NAME);
	return 0;
}

int volume_open(const char *path, bool readonly_probe, struct volume **ret_v, const char **ret_why)
{
	struct volume *v = calloc(1, sizeof(*v));
	int err;

	if (!v)
		return because(-ENOMEM, ret_why, "%s: out of memory", path);
	v->lockfd = -1;
	err = volume_place_open(path, &v->place, ret_why);
	if (err) {
		free(v);
		return err;
	}
	v->dirfd = v->place.dirfd;
	v->path = realpath(path, NULL);
	if (!v->path)
		err = because(-errno, ret_why, "%s: its path can't be resolved: %s", path,
			      strerror(errno));
	if (!err)
		err = open_superblock(v, readonly_probe, ret_why);
	if (!err)
		err = read_superblock(v, ret_why);
	if (!err && !readonly_probe)
		err = read_key(v, ret_why);
	if (err) {
		volume_close(v);
		return err;
	}
	*ret_v = v;
	return 0;
}

void volume_close(struct volume *v)
{
	if (!v)
		return;
	if (v->lockfd >= 0)
		close(v->lockfd);
	volume_place_close(&v->place);
	sodium_memzero(v->key, sizeof(v->key));
	free(v->path);
	free(v);
}
