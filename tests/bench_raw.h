/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_BENCH_RAW_H
#define KVFS_TESTS_BENCH_RAW_H
/*
 * What bench_transport compares with, on the machine itself: a raw socket's ping-pong and two
 * processes that spin on a word each; and the processes that all of its figures run in. Each figure
 * has two fresh ones: the RDMA libraries' state must not come through a fork.
 */
#include "replication/transport/transport.h"
#include "tests/unit/transport_pair.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define RECORD 1024
#define BIG 4096
#define LIST 32

static uint64_t run_ns = NSEC_PER_SEC / 5;
static uint8_t record[LIST * BIG];

struct bench {
	const struct transport_ops *ops;
	enum addr_kind kind;
	unsigned poll_us;
};

/* What a process that measures hands back. */
struct figure {
	double mean_us, p50_us, p99_us, per_s;
};

static inline pid_t child_begin(void)
{
	pid_t pid = fork();

	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static inline void child_end(pid_t pid)
{
	int status;

	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	fprintf(stderr, "bench_transport: the other process failed\n");
	exit(1);
}

static inline struct figure socket_ping_pong(const struct bench *b)
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
	return (struct figure){ .mean_us = (double)start_ns / 1e3 / (double)n };
}

/* Two processes that spin on a word each and copy the record: what shared memory can do. */
static inline struct figure spin_ping_pong(const struct bench *b)
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
	return (struct figure){ .mean_us = (double)start_ns / 1e3 / n };
}

/* In a process of its own, which starts the other side. */
static inline struct figure measure(struct figure (*fn)(const struct bench *b),
				    const struct bench *b)
{
	struct figure f = { 0 };
	int fds[2];
	pid_t pid;

	pair_must(pipe(fds) == 0, "no pipe");
	fflush(NULL);
	pid = child_begin();
	if (pid == 0) {
		f = fn(b);
		_exit(write(fds[1], &f, sizeof(f)) == sizeof(f) ? 0 : 1);
	}
	close(fds[1]);
	if (read(fds[0], &f, sizeof(f)) != sizeof(f))
		memset(&f, 0, sizeof(f));
	close(fds[0]);
	child_end(pid);
	return f;
}

#endif
