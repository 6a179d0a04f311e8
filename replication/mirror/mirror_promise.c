/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom a mirror obeys: no epoch older than the one that it has promised, in a term no other node,
 * and of one epoch only the life that it heard first. kv-listen asks before a caller may end the
 * session of another, so two copies of one volume do not take turns; kv-mirror asks again before it
 * promises.
 */
#include "replication/mirror/mirror_internal.h"

#include "common/clock.h"
#include "common/diag.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum repl_refusal mirror_promise_check(const struct mirror *m, const struct handshake_join *j,
				       char text[REPL_TEXT_BYTES])
{
	const struct mirror_promise *p = &m->promised;
	char theirs[EPOCH_TEXT_BYTES], ours[EPOCH_TEXT_BYTES];
	bool own_past = p->node_id == j->node_id && epoch_term(j->epoch) == epoch_term(p->epoch);

	epoch_format(j->epoch, theirs);
	epoch_format(p->epoch, ours);
	if (j->epoch < p->epoch) {
		snprintf(text, REPL_TEXT_BYTES,
			 "stale epoch %.22s, this mirror has promised epoch %.22s%s", theirs, ours,
			 own_past ? "; restored? mount it again" : "");
		return REPL_REFUSE_STALE_EPOCH;
	}
	if (p->node_id && j->node_id != p->node_id &&
	    epoch_term(j->epoch) == epoch_term(p->epoch)) {
		snprintf(text, REPL_TEXT_BYTES,
			 "this mirror obeys node %08x in term %llu: two nodes were promoted",
			 p->node_id, (unsigned long long)epoch_term(j->epoch));
		return REPL_REFUSE_OTHER_PRIMARY;
	}
	if (j->epoch == p->epoch && p->life && j->life != p->life) {
		snprintf(text, REPL_TEXT_BYTES,
			 "another copy of this volume began epoch %.22s: stop that; was this one "
			 "restored? mount it again", theirs);
		return REPL_REFUSE_OTHER_LIFE;
	}
	return 0;
}

int mirror_promise_refused(struct mirror *m, const struct mirror_caller *c, const char *text)
{
	const struct handshake_join *j = &c->join;
	bool again;

	pthread_mutex_lock(&m->lock);
	again = m->warned.epoch == j->epoch && m->warned.node_id == j->node_id &&
		m->warned.life == j->life;
	m->warned = (struct mirror_promise){ .epoch = j->epoch, .node_id = j->node_id,
					     .life = j->life };
	pthread_mutex_unlock(&m->lock);
	if (!again) /* it calls once a second */
		diag_warn("refused primary %s (node %08x): %s", c->peer, j->node_id, text);
	return mirror_fail(m, -ESTALE, "refused %s: %s", c->peer, text);
}

int mirror_promise_admit(struct mirror *m, struct mirror_caller *c)
{
	char text[REPL_TEXT_BYTES];
	enum repl_refusal code = mirror_promise_check(m, &c->join, text);

	if (!code)
		return 0;
	handshake_refuse(&c->handshake, c->fd, code, text, clock_mono_ns() + MIRROR_ANSWER_NS);
	return mirror_promise_refused(m, c, text);
}

int mirror_promise_store(struct mirror *m, const struct handshake_join *j)
{
	struct mirror_promise p = { .epoch = j->epoch, .node_id = j->node_id, .life = j->life };
	char text[EPOCH_TEXT_BYTES];
	int err;

	if (p.epoch == m->promised.epoch && p.node_id == m->promised.node_id &&
	    p.life == m->promised.life)
		return 0;
	err = m->ops->promise_epoch(m->ctx, &p);
	if (err)
		return mirror_fail(m, err, "cannot store the promise of epoch %s: %s",
				   epoch_format(j->epoch, text), strerror(-err));
	pthread_mutex_lock(&m->lock);
	m->promised = p;
	pthread_mutex_unlock(&m->lock);
	return 0;
}
