/* SPDX-License-Identifier: Apache-2.0 */
/* The superblock's two copies and the key file. */
#include "mkfs/fsck_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct fsck_place copy_place(unsigned copy)
{
	return (struct fsck_place){ .file = VOLUME_SUPERBLOCK_NAME,
				    .offset = (int64_t)copy * VOLUME_SUPER_COPY_OFFSET };
}

static const char *decode_error_text(int err)
{
	switch (err) {
	case -ENODATA:
		return "there is no superblock here";
	case -EPROTONOSUPPORT:
		return "made by another version of kvfs, or with a feature this one does not know; "
		       "use that "
		       "version's fsck.kvfs";
	case -EIO:
		return "can't be read: I/O error";
	default:
		return "the superblock is damaged (checksum or field out of range)";
	}
}

/* Rewrites both copies from the one that counts, the other one first. */
static int rewrite_copies(struct fsck *f, unsigned good)
{
	struct volume v = {
		.dirfd = f->dirfd, .lockfd = f->lockfd, .super = f->super, .copy = good
	};
	int err = volume_write_super(&v);

	if (!err)
		f->super = v.super;
	return err;
}

static void check_other_copy(struct fsck *f, unsigned good)
{
	struct fsck_place place = copy_place(1 - good);
	struct volume_super other;
	int err = volume_super_read(f->lockfd, 1 - good, &other);

	if (err && fsck_problem(f, &place, true, "%s; the %s copy is good", decode_error_text(err),
				good == 0 ? "first" : "second"))
		fsck_repaired(f, rewrite_copies(f, good), "rewritten from the good copy");
	if (!err && other.sequence != f->super.sequence &&
	    fsck_problem(f, &place, true,
			 "an older state than the other copy (a stop between two writes)"))
		fsck_repaired(f, rewrite_copies(f, good), "rewritten from the newer copy");
}

int fsck_check_super(struct fsck *f)
{
	unsigned good = 0;
	int err = volume_super_choose(f->lockfd, &f->super, &good);

	if (err == -EIO)
		return fsck_fail(f, VOLUME_SUPERBLOCK_NAME, err);
	if (err) {
		for (unsigned i = 0; i < VOLUME_SUPER_COPIES; i++) {
			struct fsck_place place = copy_place(i);
			struct volume_super s;
			int copy_err = volume_super_read(f->lockfd, i, &s);

			if (copy_err)
				fsck_problem(f, &place, false, "%s", decode_error_text(copy_err));
		}
		return 0;
	}
	f->super_valid = true;
	check_other_copy(f, good);
	if (f->super.state != VOLUME_READY) {
		struct fsck_place place = copy_place(good);

		fsck_problem(f, &place, false,
			     "the volume is incomplete: mkfs.kvfs or a resync did not "
			     "finish; run mkfs.kvfs again or let the resync finish");
	}
	return 0;
}

static void check_key_mode(struct fsck *f, const struct fsck_place *place)
{
	struct stat st;

	if (fstatat(f->dirfd, VOLUME_KEY_NAME, &st, 0) != 0 || (st.st_mode & 077) == 0)
		return;
	if (fsck_problem(f, place, true, "others can read the key (mode %04o)",
			 (unsigned)st.st_mode & 07777))
		fsck_repaired(
			f, fchmodat(f->dirfd, VOLUME_KEY_NAME, 0600, 0) ? -errno : 0,
			"mode set to 0600; if others may have read it, make the volume again");
}

int fsck_check_key(struct fsck *f)
{
	static const uint8_t no_uuid[16];
	const struct fsck_place place = { .file = VOLUME_KEY_NAME, .offset = -1 };
	uint8_t key[VOLUME_KEY_BYTES], uuid[16], id[16];
	int err = volume_key_read(f->dirfd, VOLUME_KEY_NAME, key, uuid);

	if (err == -ENOENT || err == -EBADMSG) {
		fsck_problem(f, &place, false,
			     "%s; copy the key file of another node of this volume there",
			     err == -ENOENT ? "the key file is missing" : "not a key file");
		return 0;
	}
	if (err)
		return fsck_fail(f, VOLUME_KEY_NAME, err);
	volume_key_id(key, id);
	if (memcmp(id, f->super.key_id, sizeof(id)) != 0) {
		fsck_problem(f, &place, false,
			     "the key of another volume; copy the key file of another "
			     "node of this volume there");
	} else {
		bool lacks = memcmp(uuid, no_uuid, sizeof(uuid)) == 0;

		check_key_mode(f, &place);
		if (memcmp(uuid, f->super.uuid, sizeof(uuid)) != 0 &&
		    fsck_problem(f, &place, true, "%s",
				 lacks ? "the line with the volume's UUID is missing" :
					 "the UUID in it is not this volume's, the key is"))
			fsck_repaired(
				f, volume_key_write(f->dirfd, VOLUME_KEY_NAME, key, f->super.uuid),
				"written again with the UUID");
	}
	sodium_memzero(key, sizeof(key));
	return 0;
}
