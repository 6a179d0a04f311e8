/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Benchmark of the transports, not run by make check: round trip of a 1 KiB write-with-immediate to
 * its acknowledgement, no FUSE and no log, one process each side, spinning and sleeping, beside
 * what the machine itself can do (raw socket ping-pong, two spinning processes); and the rate of
 * 4 KiB messages in lists of 32. The figures of verbs are for comparing with those of ib_write_lat
 * and ib_write_bw on the same device.
 *
 *   bench_transport [--transport tcp,shm,verbs] [--seconds S] [--rounds N] [--device NAME]
 *                   [--check]
 *
 * All figures in turn, S seconds each (0.2), N times (5); printed are medians. --check: exit code
 * 1 when shm is above 3 times two spinning processes, or tcp above 1.5 times a raw socket's
 * ping-pong.
 */
#include "common/histogram.h"
#include "replication/transport/transport_verbs.h"
#include "tests/bench_raw.h"

#include <getopt.h>

#define WINDOW (16U << 20)
#define WARM_UP 100
#define SHM_BAR 3.0
#define TCP_BAR 1.5
#define ROUNDS_MAX 99

static unsigned rounds = 5;
static const char *device;

/* The mirror: acknowledges each notice, or each list's last one. */
static void mirror_main(const struct bench *b, int fd, bool each)
{
	struct transport_params params = pair_params(1, WINDOW);
	struct pair p = { .ops = b->ops };
	struct transport_event ev[64];
	const char *why;

	params.poll_us = b->poll_us;
	params.device = device;
	if (b->ops->accept(fd, &params, &p.mirror, &why) < 0)
		_exit(1);
	for (;;) {
		int n = b->ops->poll(p.mirror, ev, 64, NSEC_PER_SEC);

		for (int i = 0; i < n; i++) {
			if (ev[i].kind != TRANSPORT_EVENT_NOTICE)
				_exit(ev[i].kind == TRANSPORT_EVENT_WRITABLE ? 1 : 0);
			if (each || ev[i].imm == LIST - 1)
				pair_post(&p, p.mirror, 0, record, 32, 0, TRANSPORT_IMM_ACK);
		}
	}
}

static struct pair primary_open(const struct bench *b, bool each, pid_t *ret_pid)
{
	struct transport_params params = pair_params(1, 64 << 10);
	const struct addr addr = { .kind = b->kind, .host = "127.0.0.1" };
	struct pair p = { .ops = b->ops };
	const char *why = "";
	int fds[2], r;

	pair_sockets(b->kind != ADDR_SHM, fds);
	*ret_pid = child_begin();
	if (*ret_pid == 0)
		mirror_main(b, fds[0], each);
	close(fds[0]);
	params.poll_us = b->poll_us;
	params.device = device;
	r = b->ops->connect(fds[1], &addr, &params, &p.primary, &why);
	if (r < 0) {
		fprintf(stderr, "bench_transport: connect: %s: %s\n", strerror(-r), why);
		exit(1);
	}
	close(fds[1]);
	return p;
}

static struct figure figure_of(const struct histogram *h)
{
	return (struct figure){ .mean_us = histogram_mean(h) / 1e3,
				.p50_us = (double)histogram_quantile(h, 0.5) / 1e3,
				.p99_us = (double)histogram_quantile(h, 0.99) / 1e3 };
}

static struct figure round_trip(const struct bench *b)
{
	struct histogram *h = calloc(1, sizeof(*h));
	uint64_t start_ns = clock_mono_ns(), before_ns = start_ns, now_ns, n = 0;
	struct transport_event ev;
	struct figure f;
	struct pair p;
	pid_t pid;

	pair_must(h != NULL, "no memory");
	p = primary_open(b, true, &pid);
	for (; n < 2 * WARM_UP || before_ns - start_ns < run_ns; n++) {
		pair_post(&p, p.primary, 0, record, RECORD, (n % 64) * RECORD,
			  (uint32_t)n & 0xFFFF);
		while (b->ops->poll(p.primary, &ev, 1, NSEC_PER_SEC) == 0)
			;
		pair_must(ev.kind == TRANSPORT_EVENT_NOTICE, "the lane broke");
		now_ns = clock_mono_ns();
		if (n >= WARM_UP)
			histogram_add(h, now_ns - before_ns);
		else
			start_ns = now_ns;
		before_ns = now_ns;
	}
	p.ops->close(p.primary);
	child_end(pid);
	f = figure_of(h);
	free(h);
	return f;
}

/* Four lists on the way at most: the window's ring must not be overrun. */
static struct figure list_rate(const struct bench *b)
{
	struct transport_post posts[LIST];
	struct iovec iov[LIST];
	struct transport_event ev[8];
	uint64_t start_ns, lists = 0, acked = 0;
	unsigned at = 0;
	struct pair p;
	pid_t pid;

	p = primary_open(b, false, &pid);
	start_ns = clock_mono_ns();
	while (clock_mono_ns() - start_ns < run_ns || acked < lists) {
		if (at == 0 && (lists - acked >= 4 || clock_mono_ns() - start_ns >= run_ns)) {
			int n = b->ops->poll(p.primary, ev, 8, NSEC_PER_SEC);

			for (int i = 0; i < n; i++)
				acked += ev[i].kind == TRANSPORT_EVENT_NOTICE;
			continue;
		}
		for (unsigned i = at; i < LIST; i++) {
			iov[i] = (struct iovec){ .iov_base = record + i * BIG, .iov_len = BIG };
			posts[i] = (struct transport_post){ .iov = &iov[i],
							    .iovcnt = 1,
							    .imm = i,
							    .remote_off =
								    (lists % 64 * LIST + i) * BIG };
		}
		at += (unsigned)b->ops->post(p.primary, 0, posts + at, LIST - at);
		if (at == LIST) {
			at = 0;
			lists++;
		} else {
			b->ops->poll(p.primary, ev, 1, NSEC_PER_MSEC);
		}
	}
	start_ns = clock_mono_ns() - start_ns;
	p.ops->close(p.primary);
	child_end(pid);
	return (struct figure){ .per_s = (double)(lists * LIST) * 1e9 / (double)start_ns };
}

/* A transport's figures, and what they are compared with; the ways take turns, so that what else
 * the machine does falls on all of them. */
struct way {
	const char *name;
	unsigned poll_us;
	struct figure trips[ROUNDS_MAX], lists[ROUNDS_MAX];
};
static struct way ways[] = { { .name = "spinning", .poll_us = 1000 }, { .name = "sleeping" } };
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static int compare(const void *a, const void *b)
{
	const struct figure *x = a, *y = b;

	if (x->per_s != y->per_s)
		return x->per_s < y->per_s ? -1 : 1;
	return (x->mean_us > y->mean_us) - (x->mean_us < y->mean_us);
}

static struct figure median(struct figure *f)
{
	qsort(f, rounds, sizeof(*f), compare);
	return f[rounds / 2];
}

static double say(const char *what, struct figure f, double raw_us)
{
	printf("%-34s %8.2f us", what, f.mean_us);
	if (f.p50_us > 0)
		printf("  p50 %7.2f  p99 %7.2f", f.p50_us, f.p99_us);
	if (raw_us > 0)
		printf("  %5.2f of raw", f.mean_us / raw_us);
	putchar('\n');
	return f.mean_us;
}

/* raw_fn NULL: nothing to compare with. True: within the bar. */
static bool bench_one(const char *name, struct bench b, const char *raw_name,
		      struct figure (*raw_fn)(const struct bench *b), double bar)
{
	struct figure raw[ROUNDS_MAX];
	double raw_us = 0, best_us = 0, us;
	char what[64];

	for (unsigned r = 0; r < rounds; r++) {
		if (raw_fn)
			raw[r] = measure(raw_fn, &b);
		for (size_t i = 0; i < WAYS; i++) {
			b.poll_us = ways[i].poll_us;
			ways[i].trips[r] = measure(round_trip, &b);
			ways[i].lists[r] = measure(list_rate, &b);
		}
	}
	if (raw_fn)
		raw_us = say(raw_name, median(raw), 0);
	for (size_t i = 0; i < WAYS; i++) {
		snprintf(what, sizeof(what), "%s 1 KiB round trip, %s", name, ways[i].name);
		us = say(what, median(ways[i].trips), raw_us);
		best_us = i == 0 || us < best_us ? us : best_us;
		snprintf(what, sizeof(what), "%s 4 KiB in lists of 32, %s", name, ways[i].name);
		printf("%-34s %8.0f /s\n", what, median(ways[i].lists).per_s);
	}
	if (!raw_fn)
		return true;
	printf("%s: %.2f of raw, to be at most %.1f: %s\n", name, best_us / raw_us, bar,
	       best_us <= bar * raw_us ? "met" : "not met");
	return best_us <= bar * raw_us;
}

static void bench_verbs(void)
{
	const struct bench b = { &transport_verbs_ops, ADDR_VERBS, 0 };
	char text[VERBS_TEXT_BYTES];

	if (verbs_available(device, text, sizeof(text)) != 0) {
		printf("verbs is left out: found %s\n", text);
		return;
	}
	bench_one("verbs", b, NULL, NULL, 0);
	printf("verbs: the round trip is to be at most 1.5 times twice ib_write_lat -s %d (one "
	       "way);\nthe lists at least 0.7 of ib_write_bw -s %d -l %d, messages a second\n",
	       RECORD, BIG, LIST);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "transport", required_argument, NULL, 't' },
		{ "seconds", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "device", required_argument, NULL, 'd' },
		{ "check", no_argument, NULL, 'c' },
		{ NULL, 0, NULL, 0 },
	};
	const char *list = "shm,tcp,verbs";
	bool met = true, check = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 't')
			list = optarg;
		else if (opt == 's')
			run_ns = (uint64_t)(strtod(optarg, NULL) * (double)NSEC_PER_SEC);
		else if (opt == 'r')
			rounds = (unsigned)strtoul(optarg, NULL, 10);
		else if (opt == 'd')
			device = optarg;
		else if (opt == 'c')
			check = true;
		else
			return 2;
	}
	if (rounds < 1 || rounds > ROUNDS_MAX || run_ns == 0)
		return 2;
	if (strstr(list, "shm"))
		met &= bench_one("shm", (struct bench){ &transport_shm_ops, ADDR_SHM, 0 },
				 "two spinning processes", spin_ping_pong, SHM_BAR);
	if (strstr(list, "tcp"))
		met &= bench_one("tcp", (struct bench){ &transport_tcp_ops, ADDR_TCP, 0 },
				 "raw tcp socket ping-pong", socket_ping_pong, TCP_BAR);
	if (strstr(list, "verbs"))
		bench_verbs();
	return check && !met ? 1 : 0;
}
