/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model --a DIR --b DIR [--ops N] [--seed N] [--xattr] [--times-every N]
 *       [--crash-every N --crash-command CMD]
 * Runs N random operations on two empty directories and compares them after each; every 5000, and
 * after each crash command (which kills and remounts what is under a), the whole trees. The seed is
 * printed, and the same seed runs the same operations.
 */
#include "tests/model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t model_random(struct model *m)
{
	m->random ^= m->random >> 12;
	m->random ^= m->random << 25;
	m->random ^= m->random >> 27;
	return m->random * 0x2545F4914F6CDD1DULL;
}

uint64_t model_below(struct model *m, uint64_t n)
{
	return (model_random(m) >> 16) % n;
}

void model_fail(struct model *m, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	for (uint64_t step = m->step > MODEL_HISTORY ? m->step - MODEL_HISTORY + 1 : 0;
	     step < m->step; step++)
		fprintf(stderr, "model: step %llu: %s\n", (unsigned long long)step,
			m->history[step % MODEL_HISTORY]);
	fprintf(stderr, "model: seed %llu step %llu: %s: ", (unsigned long long)m->seed,
		(unsigned long long)m->step, m->what);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static void model_open_roots(struct model *m)
{
	for (int side = 0; side < SIDES; side++) {
		m->root[side] = open(m->dir[side], O_RDONLY | O_DIRECTORY);
		if (m->root[side] < 0) {
			fprintf(stderr, "model: %s: %s\n", m->dir[side], strerror(errno));
			exit(2);
		}
	}
}

/* What the crash command starts must hold nothing of ours: a fifo would keep its reader
 * on one side. */
static void model_keep_to_ourselves(struct model *m)
{
	for (int side = 0; side < SIDES; side++) {
		fcntl(m->root[side], F_SETFD, FD_CLOEXEC);
		for (unsigned i = 0; i < MODEL_FDS; i++)
			if (m->fds[side][i] >= 0)
				fcntl(m->fds[side][i], F_SETFD, FD_CLOEXEC);
	}
}

static void model_crash(struct model *m, const char *command)
{
	model_keep_to_ourselves(m);
	snprintf(m->what, sizeof(m->what), "crash and remount");
	/* files stay open meanwhile, unlinked ones too: nothing of them may come back */
	if (system(command) != 0)
		model_fail(m, "the crash command failed");
	model_close_all(m);
	for (int side = 0; side < SIDES; side++)
		close(m->root[side]);
	model_open_roots(m);
	model_compare_tree(m);
}

static uint64_t model_number(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (*end || end == text) {
		fprintf(stderr, "model: %s is not a number\n", text);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "a", required_argument, NULL, 'a' },
		{ "b", required_argument, NULL, 'b' },
		{ "ops", required_argument, NULL, 'n' },
		{ "seed", required_argument, NULL, 's' },
		{ "crash-every", required_argument, NULL, 'c' },
		{ "crash-command", required_argument, NULL, 'C' },
		{ "xattr", no_argument, NULL, 'x' },
		{ "times-every", required_argument, NULL, 't' },
		{ NULL, 0, NULL, 0 },
	};
	static struct model m;
	uint64_t ops = 10000, crash_every = 0;
	const char *crash_command = NULL;
	int opt;

	m.times_every = 25;
	m.seed = (uint64_t)time(NULL) ^ ((uint64_t)getpid() << 32);
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'a': m.dir[SIDE_A] = optarg; break;
		case 'b': m.dir[SIDE_B] = optarg; break;
		case 'n': ops = model_number(optarg); break;
		case 's': m.seed = model_number(optarg); break;
		case 'c': crash_every = model_number(optarg); break;
		case 'C': crash_command = optarg; break;
		case 'x': m.xattr = true; break;
		case 't': m.times_every = (unsigned)model_number(optarg); break;
		default: return 2;
		}
	}
	if (!m.dir[SIDE_A] || !m.dir[SIDE_B] || optind != argc || (crash_every && !crash_command)) {
		fprintf(stderr,
			"usage: model --a DIR --b DIR [--ops N] [--seed N] [--xattr] "
			"[--times-every N]"
			" [--crash-every N --crash-command CMD]\n");
		return 2;
	}
	m.random = m.seed * 0x9E3779B97F4A7C15ULL + 1;
	umask(022);
	signal(SIGPIPE, SIG_IGN); /* writing to a fifo without a reader is EPIPE, on both sides */
	setvbuf(stdout, NULL, _IOLBF, 0);
	memset(m.fds, -1, sizeof(m.fds));
	model_open_roots(&m);
	printf("model: seed %llu, %llu operations\n", (unsigned long long)m.seed,
	       (unsigned long long)ops);
	while (m.step < ops) {
		model_step(&m);
		if (m.step % 5000 == 0)
			model_compare_tree(&m);
		if (crash_every && m.step % crash_every == 0)
			model_crash(&m, crash_command);
	}
	model_close_all(&m);
	model_compare_tree(&m);
	printf("model: %llu operations, no difference\n", (unsigned long long)m.step);
	return 0;
}
