/* SPDX-License-Identifier: Apache-2.0 */
/* What a link measures: see link_metrics.h. */
#include "replication/primary/link_metrics.h"

#include <stdio.h>

static const struct metrics_def latency_def = {
	.name = "rdma_write_latency",
	.help = "Seconds from a record's post to the acknowledgement its protocol asks for, on "
		"every transport.",
	.kind = METRICS_HISTOGRAM,
	.ns = true,
	.first_bits = METRICS_NS_FIRST_BITS,
	.sub_bits = 2,
};
/* By its name it can't be a counter, to promtool. */
static const struct metrics_def retry_def = {
	.name = "qp_retry_count",
	.help = "What was sent again to a mirror: by the transport, and posts put off for lack of "
		"credits or room.",
	.kind = METRICS_UNTYPED,
};
static const struct metrics_def cause_def = {
	.name = "kvfs_mirror_retries_total",
	.help = "Retries by cause: transport (it sent something again), post (put off for lack of "
		"credits or "
		"room), connect (an attempt to reach the mirror failed).",
	.kind = METRICS_COUNTER,
};

void link_metrics_init(struct link_metrics *t, struct metrics *m, const char *addr)
{
	t->metrics = m;
	snprintf(t->addr, sizeof(t->addr), "%s", addr);
	t->wire = metrics_stage(m, "wire");
	t->retry = metrics_series(m, &retry_def, "mirror", addr, NULL);
	t->resent = metrics_series(m, &cause_def, "mirror", addr, "cause", "transport", NULL);
	t->put_off = metrics_series(m, &cause_def, "mirror", addr, "cause", "post", NULL);
	t->connects = metrics_series(m, &cause_def, "mirror", addr, "cause", "connect", NULL);
}

void link_metrics_begin(struct link_metrics *t, const char *transport)
{
	t->latency = metrics_series(t->metrics, &latency_def, "mirror", t->addr, "transport",
				    transport, NULL);
	t->transport_retries = 0;
	atomic_store_explicit(&t->head, 0, memory_order_relaxed);
	atomic_store_explicit(&t->tail, 0, memory_order_relaxed);
}

static struct link_time *link_time_at(struct link_metrics *t, uint32_t i)
{
	return &t->at[i % LINK_TIMES];
}

void link_metrics_post(struct link_metrics *t, uint64_t last_lsn, unsigned records, uint64_t now_ns)
{
	uint32_t head = atomic_load_explicit(&t->head, memory_order_relaxed);
	struct link_time *e = link_time_at(t, head);

	/* acquire: pairs with the release in link_metrics_acked, after which the entry is ours */
	if (!t->latency ||
	    head - atomic_load_explicit(&t->tail, memory_order_acquire) == LINK_TIMES)
		return;
	atomic_store_explicit(&e->last_lsn, last_lsn, memory_order_relaxed);
	atomic_store_explicit(&e->ns, now_ns, memory_order_relaxed);
	atomic_store_explicit(&e->records, records, memory_order_relaxed);
	/* release: pairs with the acquire in link_metrics_acked */
	atomic_store_explicit(&t->head, head + 1, memory_order_release);
}

void link_metrics_posted(struct link_metrics *t, uint64_t last_lsn, unsigned records,
			 unsigned taken)
{
	uint32_t head = atomic_load_explicit(&t->head, memory_order_relaxed);
	struct link_time *e = link_time_at(t, head - 1);

	if (taken == records)
		return;
	metric_add(t->put_off, 1);
	metric_add(t->retry, 1);
	if (head == atomic_load_explicit(&t->tail, memory_order_relaxed) ||
	    atomic_load_explicit(&e->last_lsn, memory_order_relaxed) != last_lsn)
		return;
	/* What was not sent is not acknowledged, so the entry is still there. With nothing sent its
	 * LSN becomes that of the batch before. */
	atomic_store_explicit(&e->records, taken, memory_order_relaxed);
	/* release: pairs with the acquire of last_lsn in link_metrics_acked */
	atomic_store_explicit(&e->last_lsn, last_lsn - (records - taken), memory_order_release);
}

void link_metrics_acked(struct link_metrics *t, uint64_t lsn, uint64_t now_ns)
{
	uint32_t tail = atomic_load_explicit(&t->tail, memory_order_relaxed);
	/* acquire: pairs with the release in link_metrics_post */
	uint32_t head = atomic_load_explicit(&t->head, memory_order_acquire);

	while (tail != head) {
		struct link_time *e = link_time_at(t, tail);
		uint64_t ns;
		uint32_t records;

		/* acquire: pairs with the release in link_metrics_posted */
		if (atomic_load_explicit(&e->last_lsn, memory_order_acquire) > lsn)
			break;
		ns = atomic_load_explicit(&e->ns, memory_order_relaxed);
		records = atomic_load_explicit(&e->records, memory_order_relaxed);
		ns = now_ns > ns ? now_ns - ns : 0; /* now_ns may have been taken before the post */
		if (records) {
			metric_observe_n(t->latency, ns, records);
			metric_observe(t->wire, ns);
		}
		tail++;
	}
	/* release: pairs with the acquire in link_metrics_post */
	atomic_store_explicit(&t->tail, tail, memory_order_release);
}

void link_metrics_transport(struct link_metrics *t, uint64_t retries)
{
	uint64_t fresh = retries > t->transport_retries ? retries - t->transport_retries : 0;

	t->transport_retries = retries;
	if (!fresh)
		return;
	metric_add(t->resent, fresh);
	metric_add(t->retry, fresh);
}

void link_metrics_connect_failed(struct link_metrics *t)
{
	metric_add(t->connects, 1);
}
