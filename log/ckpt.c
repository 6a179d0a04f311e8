/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint directory as a whole: open, list, pins, statistics. See ckpt.h. */
#include "log/ckpt_internal.h"

#include "common/clock.h"
#include "common/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int dir_make(int dirfd)
{
	if (mkdirat(dirfd, CKPT_DIR_NAME, 0700) != 0)
		return errno == EEXIST ? 0 : -errno;
	return io_fsync_dir(dirfd);
}

int ckpt_open(int dirfd, bool create, const uint8_t uuid[16], struct ckpt **ret_ckpt)
{
	struct ckpt *c;
	int err = create ? dir_make(dirfd) : 0;

	if (err)
		return err;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->dirfd = openat(dirfd, CKPT_DIR_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (c->dirfd < 0) {
		err = -errno;
		free(c);
		return err;
	}
	memcpy(c->uuid, uuid, sizeof(c->uuid));
	c->hooks.ops = &ckpt_file_ops_system;
	c->hooks.seg_bytes = CKPT_SEG_BYTES;
	pthread_mutex_init(&c->mutex, NULL);
	*ret_ckpt = c;
	return 0;
}

void ckpt_close(struct ckpt *c)
{
	if (!c)
		return;
	assert(!c->writing);
	pthread_mutex_destroy(&c->mutex);
	close(c->dirfd);
	free(c);
}

void ckpt_set_hooks(struct ckpt *c, const struct ckpt_hooks *hooks)
{
	c->hooks = *hooks;
	if (!c->hooks.ops)
		c->hooks.ops = &ckpt_file_ops_system;
	if (c->hooks.seg_bytes == 0)
		c->hooks.seg_bytes = CKPT_SEG_BYTES;
}

int ckpt_dirfd(struct ckpt *c)
{
	return c->dirfd;
}

static int name_format(const char *prefix, uint64_t number, char *out, size_t cap)
{
	int n = snprintf(out, cap, "%s-%016llx", prefix, (unsigned long long)number);

	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

int ckpt_seg_name(uint64_t seg, char *out, size_t cap)
{
	return name_format("seg", seg, out, cap);
}

int ckpt_manifest_name(uint64_t number, char *out, size_t cap)
{
	return name_format("manifest", number, out, cap);
}

int ckpt_list(struct ckpt *c, struct ckpt_info ret_infos[2])
{
	struct ckpt_manifest m;
	uint64_t *numbers;
	size_t count;
	int found = 0;
	int err = ckpt_dir_manifests(c, &numbers, &count);

	if (err)
		return err;
	for (size_t i = 0; i < count && found < 2; i++) {
		err = ckpt_manifest_load(c, numbers[i], &m);
		if (err == -EBADMSG || err == -ENOENT)
			continue;
		if (err)
			break;
		ret_infos[found++] = m.info;
		ckpt_manifest_clear(&m);
		err = 0;
	}
	free(numbers);
	return err && err != -EBADMSG && err != -ENOENT ? err : found;
}

int ckpt_pin_info(struct ckpt *c, const struct ckpt_info *info)
{
	struct ckpt_pin *pin = NULL;
	int err = 0;

	pthread_mutex_lock(&c->mutex);
	for (unsigned int i = 0; i < CKPT_PINS_MAX; i++) {
		struct ckpt_pin *p = &c->pins[i];

		if (p->count > 0 && p->info.number == info->number) {
			pin = p;
			break;
		}
		if (p->count == 0 && !pin)
			pin = p;
	}
	if (pin) {
		pin->info = *info;
		pin->count++;
	} else {
		err = -EBUSY;
	}
	pthread_mutex_unlock(&c->mutex);
	return err;
}

/* The newest checkpoint that is not known to be damaged. */
static int newest_good(struct ckpt *c, struct ckpt_info *ret_info)
{
	struct ckpt_info infos[2];
	int n = ckpt_list(c, infos);

	for (int i = 0; i < n; i++) {
		if (!ckpt_is_bad(c, infos[i].number)) {
			*ret_info = infos[i];
			return 0;
		}
	}
	return n < 0 ? n : -ENOENT;
}

int ckpt_pin(struct ckpt *c, struct ckpt_info *ret_info)
{
	struct ckpt_info info, again;
	int err;

	/* Two commits between look and pin may have removed what was seen: look again. */
	for (;;) {
		err = newest_good(c, &info);
		if (!err)
			err = ckpt_pin_info(c, &info);
		if (err)
			return err;
		err = newest_good(c, &again);
		if (!err && again.number == info.number)
			break;
		ckpt_unpin(c, &info);
		if (err)
			return err;
	}
	*ret_info = info;
	return 0;
}

void ckpt_unpin(struct ckpt *c, const struct ckpt_info *info)
{
	pthread_mutex_lock(&c->mutex);
	for (unsigned int i = 0; i < CKPT_PINS_MAX; i++)
		if (c->pins[i].count > 0 && c->pins[i].info.number == info->number)
			c->pins[i].count--;
	pthread_mutex_unlock(&c->mutex);
}

bool ckpt_is_bad(struct ckpt *c, uint64_t number)
{
	bool bad = false;

	pthread_mutex_lock(&c->mutex);
	for (unsigned int i = 0; i < CKPT_BAD_MAX; i++)
		bad |= c->bad[i] == number;
	pthread_mutex_unlock(&c->mutex);
	return bad;
}

void ckpt_mark_bad(struct ckpt *c, uint64_t number, bool bad)
{
	unsigned int at = 0;

	pthread_mutex_lock(&c->mutex);
	for (unsigned int i = 0; i < CKPT_BAD_MAX; i++) {
		if (c->bad[i] == number)
			c->bad[i] = 0;
		if (c->bad[i] < c->bad[at]) /* a free place, else the oldest */
			at = i;
	}
	if (bad)
		c->bad[at] = number;
	pthread_mutex_unlock(&c->mutex);
}

void ckpt_stats(struct ckpt *c, struct ckpt_stats *ret_stats)
{
	pthread_mutex_lock(&c->mutex);
	*ret_stats = c->stats;
	if (c->writing)
		ret_stats->duration_ns = clock_mono_ns() - c->start_ns;
	pthread_mutex_unlock(&c->mutex);
}
