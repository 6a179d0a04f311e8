/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel is told after a change whose outcome is unknown: see fuse_doubt.h. */
#include "fs/fuse/fuse_doubt.h"

#include "common/byteorder.h"
#include "common/clock.h"
#include "common/thread.h"
#include "log/record.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <urcu/list.h>

#define DOUBT_JOIN_SECONDS 5

struct doubt_entry {
	struct cds_list_head node;
	size_t head_len;
	uint8_t head[];
};

struct doubt {
	pthread_t thread;
	pthread_mutex_t lock;          /* protects what follows */
	pthread_cond_t cond;
	pthread_cond_t told_all;       /* telling ended */
	struct cds_list_head entries;
	struct fuse_session *se;
	struct metric *told;           /* NULL once the registry may go */
	bool telling;                  /* the thread is in the kernel */
	bool stopping;
};

static void doubt_tell_name(struct fuse_session *se, uint64_t parent, const void *name, size_t len)
{
	char text[RECORD_NAME_MAX + 1];

	/* libfuse sends the byte behind the name, too, and takes it for its NUL */
	memcpy(text, name, len);
	text[len] = '\0';
	fuse_lowlevel_notify_inval_entry(se, parent, text, len); /* -ENOENT: it did not know */
	fuse_lowlevel_notify_inval_inode(se, parent, 0, 0);
}

static void doubt_tell_names(struct fuse_session *se, const struct doubt_entry *e)
{
	struct record r;
	size_t bytes;

	if (record_decode(e->head, e->head_len, &r, &bytes) != 0)
		return;
	switch (r.opcode) {
	case RECORD_CREATE:
		doubt_tell_name(se, r.u.create.parent_ino, r.name, r.name_len);
		break;
	case RECORD_LINK:
		doubt_tell_name(se, r.u.link.parent_ino, r.name, r.name_len);
		break;
	case RECORD_UNLINK:
		doubt_tell_name(se, r.u.unlink.parent_ino, r.name, r.name_len);
		break;
	case RECORD_RENAME:
		doubt_tell_name(se, r.u.rename.old_parent_ino, r.name, r.name_len);
		doubt_tell_name(se, r.u.rename.new_parent_ino, r.name2, r.name2_len);
		break;
	default:
		break;
	}
}

static void doubt_tell(struct fuse_session *se, const struct doubt_entry *e)
{
	unsigned opcode =
		get_be16(e->head + RECORD_HEADER_BYTES + offsetof(struct record_common, opcode));

	/* these have no data behind the head: it is the whole record */
	if (opcode == RECORD_CREATE || opcode == RECORD_LINK || opcode == RECORD_UNLINK ||
	    opcode == RECORD_RENAME)
		doubt_tell_names(se, e);
	fuse_lowlevel_notify_inval_inode(
		se, get_be64(e->head + offsetof(struct record_header, key_ino)), 0, 0);
}

static void *doubt_main(void *arg)
{
	struct doubt *d = arg;

	pthread_mutex_lock(&d->lock);
	while (!d->stopping) {
		struct fuse_session *se;
		struct doubt_entry *e;

		if (cds_list_empty(&d->entries)) {
			pthread_cond_wait(&d->cond, &d->lock);
			continue;
		}
		e = cds_list_first_entry(&d->entries, struct doubt_entry, node);
		cds_list_del(&e->node);
		se = d->se;
		d->telling = se != NULL;
		pthread_mutex_unlock(&d->lock);
		if (se)
			doubt_tell(se, e);
		free(e);
		pthread_mutex_lock(&d->lock);
		d->telling = false;
		pthread_cond_broadcast(&d->told_all);
		metric_add(d->told, se ? 1 : 0);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

void doubt_note(struct doubt *d, const struct op *op)
{
	struct doubt_entry *e = malloc(sizeof(*e) + op->head_len);

	if (!e)
		return; /* the kernel finds out when it looks again */
	e->head_len = op->head_len;
	memcpy(e->head, op->head, op->head_len);
	pthread_mutex_lock(&d->lock);
	cds_list_add_tail(&e->node, &d->entries);
	pthread_cond_signal(&d->cond);
	pthread_mutex_unlock(&d->lock);
}

void doubt_set_session(struct doubt *d, struct fuse_session *se)
{
	pthread_mutex_lock(&d->lock);
	d->se = se;
	pthread_mutex_unlock(&d->lock);
}

int doubt_create(struct metric *told, struct doubt **ret_d)
{
	struct doubt *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	CDS_INIT_LIST_HEAD(&d->entries);
	d->told = told;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->cond, NULL);
	thread_cond_init(&d->told_all);
	err = thread_start(&d->thread, "kv-doubt", doubt_main, d);
	if (err) {
		free(d);
		return err;
	}
	*ret_d = d;
	return 0;
}

void doubt_quiet(struct doubt *d)
{
	uint64_t deadline = clock_mono_ns() + DOUBT_JOIN_SECONDS * NSEC_PER_SEC;
	int err = 0;

	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->se = NULL;
	while (d->telling && !err)
		err = thread_cond_wait_until(&d->told_all, &d->lock, deadline);
	pthread_mutex_unlock(&d->lock);
}

int doubt_destroy(struct doubt *d)
{
	struct doubt_entry *e, *next;
	struct timespec until;

	if (!d)
		return 0;
	pthread_mutex_lock(&d->lock);
	d->stopping = true;
	pthread_cond_signal(&d->cond);
	pthread_mutex_unlock(&d->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += DOUBT_JOIN_SECONDS;
	if (pthread_timedjoin_np(d->thread, NULL, &until) != 0) {
		pthread_mutex_lock(&d->lock);
		d->told = NULL;
		pthread_mutex_unlock(&d->lock);
		return -ETIMEDOUT;
	}
	cds_list_for_each_entry_safe(e, next, &d->entries, node)
		free(e);
	pthread_cond_destroy(&d->told_all);
	pthread_cond_destroy(&d->cond);
	pthread_mutex_destroy(&d->lock);
	free(d);
	return 0;
}
