/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the mirror tells its primary of its own load, MIRROR_LOAD_NS apart: as a datagram where the
 * transport has them, else as a notice with a slot of the primary's window. One that can't be sent
 * just now is left out: the next says more. kv-mirror.
 */
#include "replication/mirror/mirror_internal.h"

#include "common/clock.h"
#include "replication/load.h"

#include <errno.h>
#include <time.h>

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts) != 0)
		return 0;
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static uint32_t permille(uint64_t part, uint64_t whole, uint32_t most)
{
	double p = whole ? (double)part * 1000 / (double)whole : 0;

	return p < most ? (uint32_t)p : most;
}

void mirror_load_begin(struct mirror *m)
{
	m->load = (struct mirror_load){ .told_ns = clock_mono_ns(), .cpu_ns = cpu_ns() };
}

void mirror_load_note(struct mirror *m)
{
	struct mirror_load *load = &m->load;

	if (m->received_lsn - m->applied_lsn > load->most_lag)
		load->most_lag = m->received_lsn - m->applied_lsn;
	if (m->ring_pos - m->ring_freed > load->most_ring)
		load->most_ring = m->ring_pos - m->ring_freed;
}

/* True: it is on its way, or lost, which is the same to us. */
static bool load_send(struct mirror *m, uint64_t sequence)
{
	struct transport_post post = {
		.iov = &(struct iovec){ m->load.buf, sizeof(m->load.buf) },
		.iovcnt = 1,
		.remote_off = load_slot_offset(sequence),
		.imm = REPL_IMM_LOAD,
		.control = true,
	};
	int err = m->tops->datagram_send ?
			  m->tops->datagram_send(m->ep, m->load.buf, sizeof(m->load.buf)) :
			  -ENOTSUP;

	if (err != -ENOTSUP)
		return err == 0;
	return m->tops->remote_window_bytes(m->ep) >= REPL_PRIMARY_WINDOW_BYTES &&
	       m->tops->post(m->ep, 0, &post, 1) == 1;
}

void mirror_load_tell(struct mirror *m, uint64_t now_ns)
{
	struct mirror_load *load = &m->load;
	uint64_t cpu, passed_ns = now_ns - load->told_ns;
	struct oplog_usage u;
	struct load l;

	if (passed_ns < MIRROR_LOAD_NS)
		return;
	cpu = cpu_ns();
	oplog_usage(m->log, &u);
	l = (struct load){
		.epoch = m->epoch,
		.sequence = load->sequence + 1,
		.apply_lag = load->most_lag,
		.node_id = m->cfg.node_id,
		.cpu_permille = permille(cpu - load->cpu_ns, passed_ns, LOAD_PERMILLE_MAX),
		.log_permille = permille(u.active_used_bytes, u.active_capacity_bytes, 1000),
		.ring_permille = permille(load->most_ring, m->ring_bytes, 1000),
		.period_ms = MIRROR_LOAD_NS / NSEC_PER_MSEC,
	};
	load_encode(&l, load->buf);
	load->told_ns = now_ns;
	load->cpu_ns = cpu;
	if (!load_send(m, l.sequence))
		return;
	load->sequence = l.sequence;
	load->most_lag = load->most_ring = 0;
}
