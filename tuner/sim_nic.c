/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queueing network of sim_nic.h. A customer is a batch: the records that share an append, a
 * doorbell and a lane move together, so large batches save fixed costs and leave fewer customers to
 * keep all stations busy. Batch size, cache misses and sleeping depend on the rate and the rate on
 * them: solved by damped iteration.
 */
#include "tuner/sim_nic.h"

#include "tuner/sim_params.h"

#include <math.h>

enum station { CPU, LEADER, UNITS, PCIE, LINK, MIRROR, STATIONS };

struct knobs {
	double lanes, poll_ns, batch, reserve_mib;
};

/* One try of the iteration. */
struct state {
	double demand[STATIONS]; /* ns a batch, at one server of the station */
	double servers[STATIONS];
	double delay;            /* ns a batch that nothing queues for */
	double batch;            /* records in a batch */
	double rate;             /* batches/s */
	double residence[STATIONS], queue[STATIONS];
	double spin;             /* share of a core that polling burns */
	double sleeping;         /* chance that a completion finds its poller asleep */
	double qp_miss, mtt_miss, region_miss;
};

/* LRU by characteristic time: misses of our QPs and of our translations [Che]. */
static void nic_cache(const struct sim_load *l, const struct knobs *k, struct state *s)
{
	double qps = k->lanes * l->mirrors, pages = ceil(l->bytes / SIM_MTU);
	double lines = (l->live_mib + k->reserve_mib) * 256.0 / SIM_MTT_LINE_PAGES;
	double records = s->rate * s->batch;
	double qp_rate = s->rate * l->mirrors / qps, mtt_rate = records * pages / lines;
	double idle_rate = l->idle_qps > 0 ? l->idle_rate / l->idle_qps : 0;
	double low = 0, high = 1e6;

	s->qp_miss = s->mtt_miss = 0;
	if (SIM_QP_BYTES * (qps + l->idle_qps) + SIM_MTT_LINE_BYTES * lines <= SIM_NIC_CACHE_BYTES)
		return;
	for (int i = 0; i < 40; i++) {
		double t = sqrt(fmax(low, 1e-9) * high);
		double used = SIM_QP_BYTES * (qps * -expm1(-qp_rate * t) +
					      l->idle_qps * -expm1(-idle_rate * t)) +
			      SIM_MTT_LINE_BYTES * lines * -expm1(-mtt_rate * t);

		if (used > SIM_NIC_CACHE_BYTES)
			high = t;
		else
			low = t;
	}
	s->qp_miss = exp(-qp_rate * low);
	s->mtt_miss = exp(-mtt_rate * low);
}

/* How often the poller sleeps, and what its spinning costs. */
static void polling(const struct knobs *k, struct state *s)
{
	double gap = 1e9 / s->rate, work = SIM_CQE_CPU_NS * s->batch + 200.0;
	double idle = fmax(0, 1.0 - work / gap);

	s->sleeping = idle * exp(-k->poll_ns / gap);
	s->spin = idle * -expm1(-k->poll_ns / gap);
	if (k->poll_ns >= 1e6) { /* spins on */
		s->sleeping = 0;
		s->spin = idle;
	}
}

static double registering(const struct sim_load *l, const struct knobs *k, struct state *s)
{
	double region_ns = SIM_REG_FIXED_NS + SIM_REGION_BYTES / 4096.0 * SIM_REG_PAGE_NS;

	s->region_miss = l->fresh_mib > 0 ? exp(-k->reserve_mib / l->fresh_mib) : 0;
	return s->region_miss * region_ns * l->bytes / SIM_REGION_BYTES;
}

static void demands(const struct sim_load *l, const struct knobs *k, struct state *s)
{
	double b = s->batch, m = l->mirrors, packets = ceil(l->bytes / SIM_MTU);
	double qps = k->lanes * m, share = qps / (qps + l->bulk_qps), reg, busy, reorder;
	double wire = (l->bytes + packets * SIM_PACKET_HEADERS) * m;
	double append = SIM_APPEND_NS + b * (SIM_RECORD_NS + SIM_APPEND_BYTE_NS * l->bytes);

	nic_cache(l, k, s);
	polling(k, s);
	reg = registering(l, k, s);
	s->demand[CPU] = b * (SIM_OP_CPU_NS + SIM_OP_BYTE_NS * l->bytes + reg + l->follow_ns) +
			 SIM_CQE_CPU_NS * m + s->sleeping * SIM_WAKE_CPU_NS;
	s->servers[CPU] = fmax(l->cores - l->other_cores - s->spin, 0.25);
	s->demand[LEADER] = append + m * (SIM_DOORBELL_NS + b * 2 * SIM_WQE_CPU_NS);
	s->servers[LEADER] = 1;
	/* A QP's state is looked up once a batch, the translation of each page once. */
	s->demand[UNITS] = m * (s->qp_miss * SIM_PCIE_READ_NS +
				b * (2 * SIM_WQE_NIC_NS + packets * SIM_PACKET_NIC_NS +
				     packets * s->mtt_miss * SIM_PCIE_READ_NS));
	/* QPs fall on units at random; those of others keep their part of the units. */
	busy = SIM_UNITS * (1 - pow(1 - 1 / SIM_UNITS, qps));
	s->servers[UNITS] = fmax(busy * (l->bulk_qps > 0 ? share : 1), 0.05);
	s->servers[UNITS] *= fmax(0.2, 1 - l->idle_rate * 2 * SIM_WQE_NIC_NS / 1e9 / SIM_UNITS);
	s->demand[PCIE] = b * l->bytes * m * SIM_PCIE_OVERHEAD / SIM_PCIE_BYTES_PER_S * 1e9;
	s->servers[PCIE] = 1;
	s->demand[LINK] = b * wire / SIM_LINK_BYTES_PER_S * 1e9 / share;
	s->servers[LINK] = 1;
	reorder = log(fmin(k->lanes, fmax(1, s->queue[UNITS] + s->queue[LINK] + 1)));
	s->demand[MIRROR] = append + SIM_REORDER_NS * k->lanes / 8 + b * SIM_CQE_CPU_NS;
	s->servers[MIRROR] = 1;
	/* Fetching the list of requests (one alone comes with the doorbell) and the payload; the
	 * wire; being asleep at either end; waiting for batches that were overtaken: the last of
	 * n exponential times. */
	s->delay = SIM_WIRE_RTT_NS + (b > 1.5 ? 2 : 1) * SIM_PCIE_READ_NS +
		   2 * s->sleeping * (SIM_WAKE_NS + SIM_MODERATION_NS / 2) +
		   reorder * s->demand[UNITS] / m;
}

/* Residence times and rate for real-valued customers [MVA]. A spread of sizes makes longer what is
 * left of the batch in service, and nothing else: a full station is no slower for it. */
static void solve(const struct sim_load *l, struct state *s)
{
	double customers = fmax(1, l->clients / s->batch), total = 0;
	double wait = (1 + l->spread * l->spread / s->batch) / 2 + 0.5;

	for (int round = 0; round < 12; round++) {
		total = s->delay + l->think_ns;
		for (int i = 0; i < STATIONS; i++) {
			double d = s->demand[i] / s->servers[i];
			double others = s->queue[i] * (customers - 1) / customers;
			double serving = fmin(others, fmin(1, s->rate * d / 1e9));

			s->residence[i] = d * (1 + others + (i == CPU ? 0 : serving * (wait - 1)));
			if (s->servers[i] > 1)
				s->residence[i] += s->demand[i] - d;
			total += s->residence[i];
		}
		s->rate = customers / total * 1e9;
		for (int i = 0; i < STATIONS; i++) {
			double q = s->rate * s->residence[i] / 1e9;

			s->queue[i] = 0.5 * (s->queue[i] + fmin(q, customers));
		}
	}
}

void sim_nic_run(const struct sim_load *load, struct tuner_settings settings,
		 struct sim_result *ret_result)
{
	struct knobs k = {
		tuner_knob_value(TUNER_KNOB_LANES, settings.level[TUNER_KNOB_LANES]),
		tuner_knob_value(TUNER_KNOB_POLL, settings.level[TUNER_KNOB_POLL]) * 1e3,
		tuner_knob_value(TUNER_KNOB_BATCH, settings.level[TUNER_KNOB_BATCH]),
		tuner_knob_value(TUNER_KNOB_RESERVE, settings.level[TUNER_KNOB_RESERVE]),
	};
	struct state s = { .batch = 1, .rate = 1e5 };
	double most = fmin(k.batch, load->clients), rtt = 0, commit = 0, follow;

	for (int round = 0; round < 24; round++) {
		demands(load, &k, &s);
		solve(load, &s);
		/* The leader takes who waits; clients answered together come back together. */
		s.batch = 0.6 * s.batch + 0.4 * fmax(1, fmin(most, s.queue[LEADER] * s.batch));
	}
	rtt = s.delay + s.residence[UNITS] + s.residence[PCIE] + s.residence[LINK] +
	      s.residence[MIRROR];
	commit = rtt + s.residence[LEADER] + s.residence[CPU];
	follow = s.rate * s.batch * load->follow_ns / 1e9;
	*ret_result = (struct sim_result){
		.ops_per_s = s.rate * s.batch,
		.commit_ns = commit,
		.rtt_ns = rtt,
		.append_ns = SIM_APPEND_NS +
			     s.batch * (SIM_RECORD_NS + SIM_APPEND_BYTE_NS * load->bytes),
		.latency_spread = 0.25 + 0.25 * load->spread + 0.5 * s.sleeping,
		.cpu_cores = s.spin + s.rate * (s.demand[CPU] + s.demand[LEADER]) / 1e9 - follow,
		.follow_cores = follow,
		.queue = s.queue[LEADER] * s.batch,
		.link_bytes_per_s = load->bulk_qps > 0
					    ? SIM_LINK_BYTES_PER_S
					    : s.rate * s.batch * load->bytes * load->mirrors,
		.mtt_miss = s.mtt_miss,
		.qp_miss = s.qp_miss,
		.region_miss = s.region_miss,
	};
}
