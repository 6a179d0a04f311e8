/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Benchmark of the transports, not run by make check: round trip of a 1 KiB write-with-immediate to
 * its acknowledgement between two processes, spinning and sleeping, beside what the machine itself
 * can do (raw socket ping-pong, two spinning processes), and the rate of 4 KiB messages in lists of
 * 32. verbs where there is an RDMA device, alone with KVFS_TEST_ONLY_VERBS in the environment
 * (tests/vm/verbs_limit.sh compares it with what ib_write_lat and ib_write_bw reach).
 *
 *   bench_transport [SECONDS-PER-FIGURE]
 */
#include "replication/transport_verbs.h"
#include "tests/unit/transport_pair.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define RECORD 1024
#define BIG 4096
#define LIST 32
#define WINDOW (16U << 20)

static uint64_t run_ns = NSEC_PER_SEC / 2;
static uint8_t record[LIST * BIG];

struct bench {
	const struct transport_ops *ops;
	bool over_tcp;
	unsigned poll_us;
};

static pid_t child_begin(void)
{
	pid_t pid = fork();

	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void child_end(pid_t pid)
{
	int status;

	waitpid(pid, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fprintf(stderr, "bench_transport: the other process failed\n");
}

/* The mirror: acknowledges each notice, or each list's last one. */
static void mirror_main(const struct bench *b, int fd, bool each)
{
	struct transport_params params = pair_params(1, WINDOW);
	struct pair p = { .ops = b->ops };
	struct transport_event ev[64];
	const char *why;

	params.poll_us = b->poll_us;
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
	const struct addr addr = { .kind = b->over_tcp ? ADDR_TCP : ADDR_SHM };
	struct pair p = { .ops = b->ops };
	const char *why = "";
	int fds[2], r;

	pair_sockets(b->over_tcp, fds);
	*ret_pid = child_begin();
	if (*ret_pid == 0)
		mirror_main(b, fds[0], each);
	close(fds[0]);
	params.poll_us = b->poll_us;
	r = b->ops->connect(fds[1], &addr, &params, &p.primary, &why);
	if (r < 0) {
		fprintf(stderr, "bench_transport: connect: %s: %s\n", strerror(-r), why);
		exit(1);
	}
	close(fds[1]);
	return p;
}

static double round_trip_us(const struct bench *b)
{
	uint64_t start_ns, n = 0;
	struct transport_event ev;
	struct pair p;
	pid_t pid;

	p = primary_open(b, true, &pid);
	for (start_ns = 0; n < 200 || clock_mono_ns() - start_ns < run_ns; n++) {
		if (n == 100)
			start_ns = clock_mono_ns();
		pair_post(&p, p.primary, 0, record, RECORD, (n % 64) * RECORD,
			  (uint32_t)n & 0xFFFF);
		while (b->ops->poll(p.primary, &ev, 1, NSEC_PER_SEC) == 0)
			;
	}
	start_ns = clock_mono_ns() - start_ns;
	p.ops->close(p.primary);
	child_end(pid);
	return (double)start_ns / 1e3 / (double)(n - 100);
}

/* Four lists on the way at most: the window's ring must not be overrun. */
static double list_rate(const struct bench *b)
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
	return (double)(lists * LIST) * 1e9 / (double)start_ns;
}

static double socket_ping_pong_us(void)
{
	uint64_t start_ns, n = 0;
	int fds[2], one = 1;
	pid_t pid;

	pair_sockets(true, fds);
	setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fds[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	pid = child_begin();
	if (pid == 0) {
		close(fds[1]);
		while (recv(fds[0], record, RECORD, MSG_WAITALL) == RECORD)
			send(fds[0], record, RECORD, MSG_NOSIGNAL);
		_exit(0);
	}
	close(fds[0]);
	for (start_ns = clock_mono_ns(); clock_mono_ns() - start_ns < run_ns; n++) {
		send(fds[1], record, RECORD, MSG_NOSIGNAL);
		recv(fds[1], record, RECORD, MSG_WAITALL);
	}
	start_ns = clock_mono_ns() - start_ns;
	close(fds[1]);
	child_end(pid);
	return (double)start_ns / 1e3 / (double)n;
}

/* Two processes that spin on a word each and copy the record: what shared memory can do. */
static double spin_ping_pong_us(void)
{
	struct shared {
		_Alignas(64) _Atomic uint32_t ping;
		_Alignas(64) _Atomic uint32_t pong;
		uint8_t bytes[RECORD];
	} *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t start_ns;
	uint32_t n = 0;
	pid_t pid = child_begin();

	if (pid == 0) {
		for (uint32_t i = 1;; i++) {
			uint32_t v;

			while ((v = atomic_load_explicit(&s->ping, memory_order_acquire)) < i)
				;
			if (v == UINT32_MAX)
				_exit(0);
			atomic_store_explicit(&s->pong, i, memory_order_release);
		}
	}
	for (start_ns = clock_mono_ns(); clock_mono_ns() - start_ns < run_ns;) {
		memcpy(s->bytes, record, RECORD);
		atomic_store_explicit(&s->ping, ++n, memory_order_release);
		while (atomic_load_explicit(&s->pong, memory_order_acquire) < n)
			;
	}
	start_ns = clock_mono_ns() - start_ns;
	atomic_store(&s->ping, UINT32_MAX);
	child_end(pid);
	munmap(s, sizeof(*s));
	return (double)start_ns / 1e3 / n;
}

static void bench_local(void)
{
	const struct bench shm_spin = { &transport_shm_ops, false, 1000 };
	const struct bench shm_sleep = { &transport_shm_ops, false, 0 };
	const struct bench tcp_spin = { &transport_tcp_ops, true, 1000 };
	const struct bench tcp_sleep = { &transport_tcp_ops, true, 0 };
	double raw_shm = spin_ping_pong_us();
	double raw_tcp = socket_ping_pong_us();
	double v;

	printf("two spinning processes          %8.2f us\n", raw_shm);
	printf("raw tcp socket ping-pong        %8.2f us\n", raw_tcp);
	v = round_trip_us(&shm_spin);
	printf("shm round trip, spinning        %8.2f us  %.2f of raw\n", v, v / raw_shm);
	printf("shm round trip, sleeping        %8.2f us\n", round_trip_us(&shm_sleep));
	v = round_trip_us(&tcp_spin);
	printf("tcp round trip, spinning        %8.2f us  %.2f of raw\n", v, v / raw_tcp);
	v = round_trip_us(&tcp_sleep);
	printf("tcp round trip, sleeping        %8.2f us  %.2f of raw\n", v, v / raw_tcp);
	printf("shm 4 KiB in lists of 32, spin  %8.0f /s\n", list_rate(&shm_spin));
	printf("shm 4 KiB in lists of 32, sleep %8.0f /s\n", list_rate(&shm_sleep));
	printf("tcp 4 KiB in lists of 32, spin  %8.0f /s\n", list_rate(&tcp_spin));
	printf("tcp 4 KiB in lists of 32, sleep %8.0f /s\n", list_rate(&tcp_sleep));
}

/* Each figure in a process of its own: an RDMA device opened before a fork is not the child's. */
static void verbs_figure(unsigned poll_us, bool rate)
{
	const struct bench b = { &transport_verbs_ops, true, poll_us };
	const char *how = poll_us > 0 ? "spin" : "sleep";
	pid_t pid;

	fflush(stdout);
	pid = child_begin();
	if (pid == 0) {
		if (rate)
			printf("verbs 4 KiB, lists of 32, %-5s %8.0f /s\n", how, list_rate(&b));
		else
			printf("verbs round trip, %-5s         %8.2f us\n", how, round_trip_us(&b));
		exit(0);
	}
	child_end(pid);
}

static void bench_verbs(void)
{
	verbs_figure(1000, false);
	verbs_figure(0, false);
	verbs_figure(1000, true);
	verbs_figure(0, true);
}

int main(int argc, char **argv)
{
	bool only_verbs = getenv("KVFS_TEST_ONLY_VERBS") != NULL;
	char text[256];

	if (argc > 1)
		run_ns = (uint64_t)(strtod(argv[1], NULL) * (double)NSEC_PER_SEC);
	if (!only_verbs)
		bench_local();
	if (verbs_available(NULL, text, sizeof(text)) == 0) {
		bench_verbs();
	} else if (only_verbs) {
		fprintf(stderr, "bench_transport: %s\n", text);
		return 1;
	}
	return 0;
}
