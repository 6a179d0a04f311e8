/* SPDX-License-Identifier: Apache-2.0 */
/* Reads every checkpoint, and finds the files that belong to none. */
#include "mkfs/fsck_index.h"

#include "common/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 64

struct ckpt_walk {
	struct fsck *f;
	struct fsck_ckpt *ckpt;
	struct fsck_index index;
};

static int add_item(void *ctx, uint64_t seg, uint8_t type, const void *data, size_t len)
{
	struct ckpt_walk *w = ctx;

	w->ckpt->items++;
	/* After an invalid item the segments are still worth reading for damage. */
	return w->index.why || fsck_index_add(&w->index, seg, type, data, len) != -ENOMEM ? 0 :
											    -ENOMEM;
}

static void show_progress(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
	struct ckpt_walk *w = ctx;

	progress_update(&w->f->progress, done_bytes, total_bytes);
}

static bool index_valid(struct fsck *f, struct fsck_index *x, const struct ckpt_info *info)
{
	char name[NAME_BYTES] = "ckpt";
	struct fsck_place place = {
		.file = name, .offset = -1, .lsn = info->lsn, .seg = x->why_seg
	};

	if (!x->why)
		return fsck_index_check(f, x, info) == 0;
	ckpt_manifest_name(info->number, name, sizeof(name));
	fsck_detail(f, &place, "index: %s", x->why);
	return false;
}

/* Reads the checkpoint whose slot is f->ckpts[f->ckpt_count]. */
static int read_one(struct fsck *f, struct ckpt *c)
{
	static const struct ckpt_read_ops ops = { add_item, show_progress };
	struct fsck_ckpt *k = &f->ckpts[f->ckpt_count];
	struct ckpt_walk w = { .f = f, .ckpt = k };
	char name[NAME_BYTES] = "ckpt";
	uint64_t bad_seg = 0;
	int err;

	progress_begin(&f->progress, "reading checkpoints");
	fsck_index_init(&w.index);
	err = ckpt_read(c, &k->info, &ops, &w, &bad_seg);
	k->valid = err == 0 && index_valid(f, &w.index, &k->info);
	fsck_index_clear(&w.index);
	if (err == -EBADMSG || err == -EIO) {
		struct fsck_place place = { .file = name, .offset = -1, .seg = bad_seg };

		ckpt_manifest_name(k->info.number, name, sizeof(name));
		place.lsn = k->info.lsn;
		fsck_detail(f, &place, "this segment is missing, short or damaged");
		err = 0;
	}
	return err;
}

int fsck_check_ckpts(struct fsck *f)
{
	struct fsck_place place = { .file = "ckpt", .offset = -1 };
	struct ckpt_info infos[2];
	struct ckpt *c = NULL;
	int err = ckpt_open(f->dirfd, false, f->super.uuid, &c);
	int count;

	f->ckpt_count = 0;
	if (err == -ENOENT || err == -ENOTDIR || err == -ELOOP) {
		if (!fsck_problem(f, &place, err == -ENOENT, "the checkpoint directory is missing"))
			return 0;
		err = ckpt_open(f->dirfd, true, f->super.uuid, &c);
		fsck_repaired(f, err, "made, empty");
	}
	if (err)
		return fsck_fail(f, "ckpt", err);
	count = ckpt_list(c, infos);
	if (count < 0)
		err = count;
	for (int i = 0; i < count && !err; i++) {
		f->ckpts[i] = (struct fsck_ckpt){ .info = infos[i] };
		err = read_one(f, c);
		f->ckpt_count++;
	}
	progress_end(&f->progress);
	ckpt_close(c);
	return err ? fsck_fail(f, "ckpt", err) : 0;
}

static int open_ckpt_dir(struct fsck *f)
{
	int fd = openat(f->dirfd, "ckpt", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

int fsck_ckpt_drop(struct fsck *f, uint64_t number)
{
	char name[NAME_BYTES];
	int fd = open_ckpt_dir(f);
	int err = ckpt_manifest_name(number, name, sizeof(name));

	if (fd < 0)
		return fd;
	if (!err && unlinkat(fd, name, 0) != 0)
		err = -errno;
	if (!err)
		err = io_fsync_dir(fd);
	close(fd);
	return err;
}

/* "manifest-…": named by ckpt_manifest_name, of this number. */
bool fsck_name_is_manifest(const char *name, uint64_t *ret_number)
{
	char again[NAME_BYTES];
	const char *dash = strrchr(name, '-');
	char *end;
	uint64_t number;

	if (!dash)
		return false;
	number = strtoull(dash + 1, &end, 16);
	if (*end != '\0' || ckpt_manifest_name(number, again, sizeof(again)) != 0 ||
	    strcmp(again, name) != 0)
		return false;
	*ret_number = number;
	return true;
}

static bool name_is_seg(const char *name, uint64_t *ret_seg)
{
	char again[NAME_BYTES];
	const char *dash = strrchr(name, '-');
	char *end;
	uint64_t seg;

	if (!dash)
		return false;
	seg = strtoull(dash + 1, &end, 16);
	if (*end != '\0' || ckpt_seg_name(seg, again, sizeof(again)) != 0 ||
	    strcmp(again, name) != 0)
		return false;
	*ret_seg = seg;
	return true;
}

static bool is_kept(const struct fsck *f, bool manifest, uint64_t number)
{
	for (int i = 0; i < f->ckpt_count; i++) {
		const struct ckpt_info *info = &f->ckpts[i].info;

		if (manifest ? number == info->number :
			       number >= info->first_seg && number <= info->last_seg)
			return true;
	}
	return false;
}

static bool ends_with(const char *name, const char *tail)
{
	size_t n = strlen(name), t = strlen(tail);

	return n > t && strcmp(name + n - t, tail) == 0;
}

static void judge_file(struct fsck *f, int fd, const char *name)
{
	char path[NAME_BYTES + 256];
	struct fsck_place place = { .file = path, .offset = -1 };
	uint64_t number = 0;
	bool manifest = fsck_name_is_manifest(name, &number);
	bool seg = !manifest && name_is_seg(name, &number);

	snprintf(path, sizeof(path), "ckpt/%s", name);
	if ((manifest || seg) && is_kept(f, manifest, number))
		return;
	if (manifest && number > f->newest_listed) /* fsck_chain.c reported it */
		return;
	if (!manifest && !seg && !ends_with(name, ".tmp")) {
		fsck_note(f, &place, "not a file of kvfs; left as it is");
		return;
	}
	if (!f->repair || f->keep_strays) {
		fsck_note(f, &place,
			  "left over from an interrupted checkpoint; the next one removes it");
		return;
	}
	fsck_problem(f, &place, true, "left over from an interrupted checkpoint");
	fsck_repaired(f, unlinkat(fd, name, 0) != 0 ? -errno : 0, "removed");
}

int fsck_check_strays(struct fsck *f)
{
	int fd = open_ckpt_dir(f);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) /* reported by fsck_check_ckpts */
		return 0;
	while ((e = readdir(d))) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			judge_file(f, fd, e->d_name);
	}
	closedir(d);
	return 0;
}
