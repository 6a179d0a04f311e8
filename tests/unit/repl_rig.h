/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_REPL_RIG_H
#define KVFS_TESTS_REPL_RIG_H
/*
 * A primary and mirrors in one process, in a temporary directory: nodes (repl_node.h), writers
 * (repl_writer.h), and what connects and compares them.
 */
#include "replication/transport/transport.h"
#include "replication/transport/transport_fault.h"
#include "tests/unit/repl_node.h"
#include "tests/unit/repl_writer.h"

#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* Waits until mirror m has applied all that p wrote, and compares. */
static inline void rig_expect_same(struct rig_node *p, struct rig_node *m)
{
	uint64_t deadline = clock_mono_ns() + RIG_WAIT_NS;
	struct mirror_stats s;
	int err = 0;

	pthread_mutex_lock(&m->lock);
	m->wake_lsn = p->last_lsn;
	while (!err && m->last_lsn < p->last_lsn)
		err = thread_cond_wait_until(&m->changed, &m->lock, deadline);
	m->wake_lsn = 0;
	mirror_stats(m->mirror, &s);
	ck_assert_msg(!err, "mirror is at %lu (%s), primary at %lu", m->last_lsn, s.last_error,
		      p->last_lsn);
	ck_assert(!s.failed);
	ck_assert_uint_eq(m->last_lsn, p->last_lsn);
	ck_assert_uint_eq(oplog_last_lsn(m->log), p->last_lsn);
	ck_assert_int_eq(memcmp(m->sums, p->sums, sizeof(m->sums)), 0);
	pthread_mutex_unlock(&m->lock);
}

/* The rig: one primary, up to two mirrors. */
struct rig {
	char dir[200];
	struct rig_node p, m[2];
};

/* The transport of the tests that go over a network: tcp, or verbs where KVFS_TEST_TRANSPORT=verbs
 * says so (in the virtual-machine rig: tests/vm/verbs_contract.sh). */
static inline enum addr_kind rig_net(void)
{
	const char *name = getenv("KVFS_TEST_TRANSPORT");

	return name && strcmp(name, "verbs") == 0 ? ADDR_VERBS : ADDR_TCP;
}

static inline const struct transport_ops *rig_net_ops(void)
{
	return transport_for(rig_net());
}

static inline void rig_open(struct rig *r, enum addr_kind kind)
{
	const char *tmp = getenv("TMPDIR");

	/* In memory where there is such a place: three logs on one disk would be all
	 * that is measured. */
	if (access("/dev/shm", W_OK) == 0)
		tmp = "/dev/shm";
	snprintf(r->dir, sizeof(r->dir), "%s/kvfs-repl-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(r->dir));
	rig_node_open(&r->p, r->dir, "p", 1);
	for (int i = 0; i < 2; i++) {
		struct rig_node *m = &r->m[i];

		rig_node_open(m, r->dir, i ? "m1" : "m0", 2 + (uint32_t)i);
		m->listen.kind = kind;
		if (kind == ADDR_SHM)
			snprintf(m->listen.host, sizeof(m->listen.host), "%s/m%d.sock", r->dir, i);
		else
			snprintf(m->listen.host, sizeof(m->listen.host), "127.0.0.1");
	}
}

static inline int rig_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static inline void rig_close(struct rig *r)
{
	rig_node_close(&r->p);
	rig_node_close(&r->m[0]);
	rig_node_close(&r->m[1]);
	nftw(r->dir, rig_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void rig_primary_start_with(struct rig *r, const struct primary_config *cfg)
{
	ck_assert_int_eq(primary_create(r->p.commit, r->p.log, r->p.ckpt, cfg, &r->p.primary), 0);
}

static inline void rig_primary_start(struct rig *r, unsigned mirrors, unsigned lanes,
				     const struct transport_ops *transport)
{
	struct addr addrs[2] = { r->m[0].listen, r->m[1].listen };
	struct primary_config cfg = rig_primary_config(&r->p, addrs, mirrors, lanes);

	cfg.transport = transport;
	rig_primary_start_with(r, &cfg);
}

/* The primary may be live a moment before the mirror says so. */
static inline void rig_wait_connected(struct rig_node *n, struct mirror_stats *ret_stats)
{
	uint64_t end = clock_mono_ns() + RIG_WAIT_NS;

	do
		mirror_stats(n->mirror, ret_stats);
	while (!ret_stats->connected && clock_mono_ns() < end && sched_yield() == 0);
	ck_assert(ret_stats->connected);
}

static inline void rig_wait_live(struct rig *r, unsigned n)
{
	const char *why = "";
	int err = primary_wait_live(r->p.primary, n, RIG_WAIT_NS, &why);

	ck_assert_msg(err == 0, "not live: %s: %s", strerror(-err), why);
}

/* A live mirror that stops answering after a while, for longer than the primary waits for it. */
static inline void rig_open_stalling(struct rig *r, enum addr_kind kind,
				     const struct transport_ops *net)
{
	static const struct transport_fault_plan plan = { .seed = 1, .stall_at = 200,
							  .stall_ns = 1200 * NSEC_PER_MSEC };
	struct primary_config cfg;

	transport_fault_use(net, &plan);
	rig_open(r, kind);
	rig_commit_start(&r->p, COMMIT_PROTOCOL_C, 0, NSEC_PER_SEC);
	rig_mirror_start(&r->m[0], &transport_fault_ops);
	cfg = rig_primary_config(&r->p, &r->m[0].listen, 1, 2);
	cfg.timeout_ns = NSEC_PER_SEC;
	rig_primary_start_with(r, &cfg);
	rig_wait_live(r, 1);
}

/* p serves the count mirrors at addrs in the next epoch, as after a start or a promotion. */
static inline void rig_serve(struct rig_node *p, const struct addr *addrs, unsigned count,
			     bool promote)
{
	struct primary_config cfg;

	p->epoch = epoch_next(p->epoch > p->promised ? p->epoch : p->promised, promote);
	rig_commit_start(p, COMMIT_PROTOCOL_C, 0, RIG_TIMEOUT_NS);
	cfg = rig_primary_config(p, addrs, count, 2);
	ck_assert_int_eq(primary_create(p->commit, p->log, p->ckpt, &cfg, &p->primary), 0);
}

#endif
