/* SPDX-License-Identifier: Apache-2.0 */
/* What goes from the checkpoint directory: superseded checkpoints, leftovers of a crash,
 * everything. */
#include "log/ckpt_internal.h"

#include <errno.h>
#include <string.h>

struct prune {
	struct ckpt *c;
	const struct ckpt_info *keep;
	size_t keep_count;
	struct ckpt_info pins[CKPT_PINS_MAX];
	size_t pin_count;
	bool segs;           /* this pass is for segments, not for manifests */
	bool removed;
};

static bool names_it(const struct ckpt_info *i, enum ckpt_name_kind kind, uint64_t number)
{
	if (kind == CKPT_NAME_MANIFEST)
		return i->number == number;
	return number >= i->first_seg && number <= i->last_seg;
}

static bool is_kept(const struct prune *p, enum ckpt_name_kind kind, uint64_t number)
{
	for (size_t i = 0; i < p->keep_count; i++)
		if (names_it(&p->keep[i], kind, number))
			return true;
	for (size_t i = 0; i < p->pin_count; i++)
		if (names_it(&p->pins[i], kind, number))
			return true;
	return false;
}

static int prune_one(void *ctx, const char *name, enum ckpt_name_kind kind, uint64_t number)
{
	struct prune *p = ctx;
	const struct ckpt_hooks *h = &p->c->hooks;
	int err;

	if (kind == CKPT_NAME_OTHER || (kind == CKPT_NAME_SEG) != p->segs)
		return 0;
	if (kind != CKPT_NAME_TMP && is_kept(p, kind, number))
		return 0;
	err = h->ops->unlink(h->ops_ctx, p->c->dirfd, name);
	if (err && err != -ENOENT)
		return err;
	p->removed = true;
	return 0;
}

static void pins_copy(struct prune *p)
{
	struct ckpt *c = p->c;

	pthread_mutex_lock(&c->mutex);
	p->pin_count = 0;
	for (unsigned int i = 0; i < CKPT_PINS_MAX; i++)
		if (c->pins[i].count > 0)
			p->pins[p->pin_count++] = c->pins[i].info;
	pthread_mutex_unlock(&c->mutex);
}

int ckpt_dir_prune(struct ckpt *c, const struct ckpt_info *keep, size_t keep_count)
{
	struct prune p = { .c = c, .keep = keep, .keep_count = keep_count };
	const struct ckpt_hooks *h = &c->hooks;
	int err;

	pins_copy(&p);
	err = ckpt_dir_each(c, prune_one, &p);
	if (!err && p.removed)
		err = h->ops->fsync_dir(h->ops_ctx, c->dirfd);
	if (err)
		return err;
	p.segs = true;
	return ckpt_dir_each(c, prune_one, &p);
}

struct wipe {
	struct ckpt *c;
	bool manifests; /* this pass is for manifests only */
};

static int wipe_one(void *ctx, const char *name, enum ckpt_name_kind kind, uint64_t number)
{
	struct wipe *w = ctx;
	const struct ckpt_hooks *h = &w->c->hooks;
	int err;

	(void)number;
	if (w->manifests && kind != CKPT_NAME_MANIFEST)
		return 0;
	err = h->ops->unlink(h->ops_ctx, w->c->dirfd, name);
	return err == -ENOENT ? 0 : err;
}

static int wipe_pass(struct ckpt *c, bool manifests)
{
	struct wipe w = { c, manifests };
	int err = ckpt_dir_each(c, wipe_one, &w);

	return err ? err : c->hooks.ops->fsync_dir(c->hooks.ops_ctx, c->dirfd);
}

int ckpt_wipe(struct ckpt *c)
{
	bool busy;
	int err;

	pthread_mutex_lock(&c->mutex);
	busy = c->writing;
	for (unsigned int i = 0; i < CKPT_PINS_MAX; i++)
		busy |= c->pins[i].count > 0;
	if (!busy)
		memset(c->bad, 0, sizeof(c->bad));
	pthread_mutex_unlock(&c->mutex);
	if (busy)
		return -EBUSY;
	err = wipe_pass(c, true);
	return err ? err : wipe_pass(c, false);
}
