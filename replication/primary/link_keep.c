/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops whose memory a transport still reads after post returned (transport_ops.in_place). Each is
 * kept until the mirror says that it has the record: then nobody needs the bytes any more,
 * whatever was acknowledged below. What was sent when the session ended is kept until the
 * endpoint is closed. Bounded by the window of the session.
 *
 * Under send_lock, but for putting: release() may take other locks.
 */
#include "replication/primary/link.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define KEEP_BATCH 64

int link_keep_begin(struct link *l)
{
	struct link_sender *s = &l->send;
	int err;

	pthread_mutex_lock(&l->send_lock);
	s->holds = l->tops->in_place && l->primary->cfg.memory;
	if (s->holds && !s->held)
		s->held = calloc(REPL_WINDOW_RECORDS, sizeof(struct op *));
	err = s->holds && !s->held ? -ENOMEM : 0;
	if (err)
		s->holds = false;
	s->held_lsn = l->welcome.last_lsn;
	link_unlock(l);
	return err;
}

void link_keep_locked(struct link *l, struct op *op)
{
	struct op **place;

	if (!l->send.holds || op->data_iovcnt == 0)
		return;
	/* free: the window lets no LSN be sent that shares its place with one not yet
	 * acknowledged */
	place = &l->send.held[op->lsn % REPL_WINDOW_RECORDS];
	assert(!*place);
	op_get(op);
	*place = op;
}

void link_keep_release(struct link *l, uint64_t lsn)
{
	struct link_sender *s = &l->send;
	struct op *done[KEEP_BATCH];
	unsigned n;

	if (!s->holds)
		return;
	do {
		n = 0;
		pthread_mutex_lock(&l->send_lock);
		while (s->held_lsn < lsn && n < KEEP_BATCH) {
			struct op **place = &s->held[++s->held_lsn % REPL_WINDOW_RECORDS];

			if (*place)
				done[n++] = *place;
			*place = NULL;
		}
		link_unlock(l);
		for (unsigned i = 0; i < n; i++)
			op_put(done[i]);
	} while (n == KEEP_BATCH);
}

void link_keep_end(struct link *l)
{
	struct link_sender *s = &l->send;

	if (s->holds)
		link_keep_release(l, s->held_lsn + REPL_WINDOW_RECORDS);
}
